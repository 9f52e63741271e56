{{- /* The release's name, or release and chart where the release is called otherwise. */}}
{{- define "headway.name" -}}
{{- $release := .Release.Name | trunc 32 | trimSuffix "-" -}}
{{- if contains "headway" $release }}{{ $release }}{{ else }}{{ printf "%s-headway" $release }}{{ end -}}
{{- end }}

{{- define "headway.selector" -}}
app.kubernetes.io/name: headway
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "headway.labels" -}}
{{ include "headway.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "headway.image" -}}
{{- $image := .image -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}{{ else }}{{ $image.repository }}:{{ default .root.Chart.AppVersion $image.tag }}{{ end -}}
{{- end }}

{{- define "headway.authSecret" -}}
{{- default (printf "%s-auth" (include "headway.name" .)) .Values.auth.existingSecret -}}
{{- end }}

{{- define "headway.tlsSecret" -}}
{{- default (printf "%s-tls" (include "headway.name" .)) .Values.tls.existingSecret -}}
{{- end }}

{{- define "headway.keysSecret" -}}
{{- default (printf "%s-keys" (include "headway.name" .)) .Values.gateway.existingKeysSecret -}}
{{- end }}

{{- define "headway.hasKeys" -}}
{{- if or .Values.gateway.existingKeysSecret .Values.gateway.apiKeys .Values.gateway.adminKeys }}yes{{ end -}}
{{- end }}

{{- /* Workers of one pod of a pool. */}}
{{- define "headway.workersPerCell" -}}
{{- $gpus := int (default 0 .gpusPerCell) -}}
{{- if gt $gpus 0 }}{{ div $gpus (int (default 1 .gpusPerWorker)) }}{{ else }}{{ int (default 1 .workersPerCell) }}{{ end -}}
{{- end }}

{{- define "headway.checks" -}}
{{- $values := .Values -}}
{{- $sources := list -}}
{{- if $values.modelStorage.existingClaim }}{{ $sources = append $sources "existingClaim" }}{{ end -}}
{{- if $values.modelStorage.hostPath }}{{ $sources = append $sources "hostPath" }}{{ end -}}
{{- if $values.modelStorage.volume }}{{ $sources = append $sources "volume" }}{{ end -}}
{{- if ne (len $sources) 1 -}}
{{- fail (printf "modelStorage: give exactly one of existingClaim, hostPath and volume (%s)." (default "none is given" (join " and " $sources))) -}}
{{- end -}}
{{- if and $values.modelStorage.fetch.enabled (not $values.modelDeployments.enabled) -}}
{{- fail "modelStorage.fetch: only resources name models to fetch; set modelDeployments.enabled too." -}}
{{- end -}}
{{- $names := list -}}
{{- range $model := $values.models -}}
{{- if not (hasPrefix (printf "%s/" $values.modelStorage.mountPath) $model.path) -}}
{{- fail (printf "models: the path of %s, %s, is not below modelStorage.mountPath, %s." $model.name $model.path $values.modelStorage.mountPath) -}}
{{- end -}}
{{- $names = append $names $model.name -}}
{{- end -}}
{{- if and $values.modelDeployments.enabled $names }}{{ fail "models: modelDeployments.enabled has them declared as resources instead." }}{{ end -}}
{{- if not (or $values.modelDeployments.enabled $names) }}{{ fail "models: give one, or modelDeployments.enabled." }}{{ end -}}
{{- if ne (len $names) (len (uniq $names)) }}{{ fail "models: two have the same name." }}{{ end -}}
{{- $pools := list -}}
{{- $emulated := list -}}
{{- $total := 0 -}}
{{- range $pool := $values.workers -}}
{{- $pools = append $pools $pool.name -}}
{{- if $pool.emulate }}{{ $emulated = append $emulated $pool.name }}{{ end -}}
{{- if and $pool.emulate (gt (int (default 0 $pool.gpusPerCell)) 0) -}}
{{- fail (printf "workers: %s emulates a device, so it has no GPUs; give workersPerCell instead of gpusPerCell." $pool.name) -}}
{{- end -}}
{{- if and (eq (default "headway" $pool.engine) "vllm") (or $pool.emulate (not $pool.image)) -}}
{{- fail (printf "workers: %s computes with vllm: give an image that has it, and no device to emulate." $pool.name) -}}
{{- end -}}
{{- $each := int (default 1 $pool.gpusPerWorker) -}}
{{- if and (gt $each 1) (or (ne (default "headway" $pool.engine) "vllm") (eq (int (default 0 $pool.gpusPerCell)) 0) (ne (mod (int $pool.gpusPerCell) $each) 0)) -}}
{{- fail (printf "workers: gpusPerWorker of %s is %d: that is for engine: vllm, with a multiple of it as gpusPerCell." $pool.name $each) -}}
{{- end -}}
{{- $isServer := eq (default "headway" $pool.engine) "vllm-server" -}}
{{- if and $isServer (not (and $pool.engineUrl $pool.engineModel)) -}}
{{- fail (printf "workers: %s stands in for a vLLM server: give engineUrl and engineModel." $pool.name) -}}
{{- end -}}
{{- if and (not $isServer) (or $pool.engineUrl $pool.engineModel $pool.engineEvents $pool.engineKeySecret) -}}
{{- fail (printf "workers: %s has a server's address or key; give engine: vllm-server with it." $pool.name) -}}
{{- end -}}
{{- if and $isServer (or $pool.emulate (gt (int $pool.cells) 1) (gt (int (include "headway.workersPerCell" $pool)) 1) (gt (int (default 0 $pool.gpusPerCell)) 0)) -}}
{{- fail (printf "workers: %s stands in for one server: it has one cell with one worker, and no GPU." $pool.name) -}}
{{- end -}}
{{- if and $pool.workersPerCell (gt (int (default 0 $pool.gpusPerCell)) 0) -}}
{{- fail (printf "workers: %s has a worker for each GPU; leave workersPerCell out." $pool.name) -}}
{{- end -}}
{{- $total = add $total (mul (int $pool.cells) (int (include "headway.workersPerCell" $pool))) -}}
{{- end -}}
{{- range $model := $values.models -}}
{{- range $model.pools }}{{ if not (has . $pools) }}{{ fail (printf "models: %s is for workers of the pool %s, which workers does not have." $model.name .) }}{{ end }}{{ end -}}
{{- with $model.replicas }}{{ if and .idleSeconds (not (and (hasKey . "min") (eq (int .min) 0))) }}{{ fail (printf "models: idleSeconds says when %s is unloaded, which only replicas: {min: 0} allows." $model.name) }}{{ end }}{{ end -}}
{{- if and $model.roles (or $model.replicas $model.parallelism) }}{{ fail (printf "models: the roles of %s say how many lone workers serve it; leave replicas and parallelism out." $model.name) }}{{ end -}}
{{- end -}}
{{- if ne (len $pools) (len (uniq $pools)) }}{{ fail "workers: two pools have the same name." }}{{ end -}}
{{- if and $emulated (ne (len $emulated) (len $pools)) -}}
{{- fail "workers: either all pools emulate devices or none does." -}}
{{- end -}}
{{- if and (eq (int $total) 0) (not $values.workerPools.enabled) }}{{ fail "workers: no pool has a cell." }}{{ end -}}
{{- if and $values.workerPools.enabled $pools -}}
{{- fail "workers: workerPools.enabled has them declared as resources instead." -}}
{{- end -}}
{{- if and $values.workerPools.enabled (not $values.modelDeployments.enabled) -}}
{{- fail "workerPools: pools grow and shrink with what is declared; set modelDeployments.enabled too." -}}
{{- end -}}
{{- $limits := $values.limits -}}
{{- $group := mul (int (default 1 $limits.tp)) (int (default 1 $limits.pp)) (int (default 1 $limits.cp)) -}}
{{- if and (gt (int $group) (int $total)) (not $values.workerPools.enabled) -}}
{{- fail (printf "limits: tp x pp x cp are %d workers, and there are %d." (int $group) (int $total)) -}}
{{- end -}}
{{- if ne (empty $limits.prefillWorkers) (empty $limits.decodeWorkers) -}}
{{- fail "limits: give prefillWorkers and decodeWorkers both, or neither." -}}
{{- end -}}
{{- $redis := $values.redis -}}
{{- $external := or $redis.external.url $redis.external.existingSecret -}}
{{- if and $redis.bundled.enabled $external -}}
{{- fail "redis: bundled.enabled and external both say where Redis is; set bundled.enabled=false." -}}
{{- end -}}
{{- if not (or $redis.bundled.enabled $external) -}}
{{- fail "redis: bundled.enabled is false, so give external.url or external.existingSecret." -}}
{{- end -}}
{{- if and $redis.external.url $redis.external.existingSecret -}}
{{- fail "redis.external: give url or existingSecret, not both." -}}
{{- end -}}
{{- if and $values.gateway.existingKeysSecret (or $values.gateway.apiKeys $values.gateway.adminKeys) -}}
{{- fail "gateway: existingKeysSecret is instead of apiKeys and adminKeys." -}}
{{- end -}}
{{- if and $values.tls.existingSecret (or (not $values.tls.enabled) $values.tls.certManager.issuer.name) -}}
{{- fail "tls: existingSecret is for enabled, and instead of certManager.issuer." -}}
{{- end -}}
{{- if and $values.gateway.autoscaling.enabled (gt (int $values.gateway.autoscaling.minReplicas) (int $values.gateway.autoscaling.maxReplicas)) -}}
{{- fail "gateway.autoscaling: minReplicas is above maxReplicas." -}}
{{- end -}}
{{- end }}

{{- /* What the restricted pod security standard asks for. */}}
{{- define "headway.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "headway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Variables of every process: who it is, where it is reached, where Redis is; and where commands in its pod ask. */}}
{{- define "headway.env" -}}
- {name: HEADWAY_MEMBER_ID, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: HEADWAY_ADVERTISE_HOST, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: HEADWAY_BIND_HOST, value: 0.0.0.0}
- {name: HEADWAY_NAMESPACE, value: {{ .Release.Name | quote }}}
- {name: HEADWAY_LOG_LEVEL, value: {{ .Values.logLevel | quote }}}
- {name: HEADWAY_ENDPOINT, value: "{{ include "headway.name" . }}:{{ .Values.gateway.service.grpcPort }}"}
{{- with .Values.otlpEndpoint }}
- {name: HEADWAY_OTLP_ENDPOINT, value: {{ . | quote }}}
{{- end }}
- {name: HEADWAY_AUTH_TOKEN, valueFrom: {secretKeyRef: {name: {{ include "headway.authSecret" . }}, key: auth-token}}}
{{- if .Values.redis.bundled.enabled }}
- {name: REDIS_PASSWORD, valueFrom: {secretKeyRef: {name: {{ include "headway.authSecret" . }}, key: redis-password}}}
- {name: HEADWAY_REDIS_URL, value: "redis://:$(REDIS_PASSWORD)@{{ include "headway.name" . }}-redis:6379/0"}
{{- else if .Values.redis.external.existingSecret }}
- {name: HEADWAY_REDIS_URL, valueFrom: {secretKeyRef: {name: {{ .Values.redis.external.existingSecret }}, key: {{ .Values.redis.external.key }}}}}
{{- else }}
- {name: HEADWAY_REDIS_URL, value: {{ .Values.redis.external.url | quote }}}
{{- end }}
{{- if .Values.redis.external.caSecret }}
- {name: SSL_CERT_FILE, value: /etc/headway/redis/ca.crt}
{{- end }}
{{- if .Values.tls.enabled }}
- {name: HEADWAY_TLS_CA, value: /etc/headway/tls/ca.crt}
- {name: HEADWAY_TLS_CERT, value: /etc/headway/tls/tls.crt}
- {name: HEADWAY_TLS_KEY, value: /etc/headway/tls/tls.key}
{{- end }}
- {name: HOME, value: /tmp}
- {name: NUMBA_CACHE_DIR, value: /tmp/numba}
- {name: MPLCONFIGDIR, value: /tmp/matplotlib}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "headway.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.redis.external.caSecret }}
- {name: redis-ca, mountPath: /etc/headway/redis, readOnly: true}
{{- end }}
{{- if .root.Values.tls.enabled }}
- {name: tls, mountPath: /etc/headway/tls, readOnly: true}
{{- end }}
{{- if .hasModels }}
- {name: models, mountPath: {{ .root.Values.modelStorage.mountPath }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "headway.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- with .root.Values.redis.external.caSecret }}
- {name: redis-ca, secret: {secretName: {{ . }}}}
{{- end }}
{{- if .root.Values.tls.enabled }}
- {name: tls, secret: {secretName: {{ include "headway.tlsSecret" .root }}, defaultMode: 0440}}
{{- end }}
{{- if .hasModels }}
- name: models
  {{- include "headway.modelVolume" (dict "root" .root "readOnly" true) | nindent 2 }}
{{- end }}
{{- end }}

{{- define "headway.modelVolume" -}}
{{- $readOnly := .readOnly -}}
{{- with .root.Values.modelStorage.existingClaim -}}
persistentVolumeClaim: {claimName: {{ . }}{{ if $readOnly }}, readOnly: true{{ end }}}
{{- end }}
{{- with .root.Values.modelStorage.hostPath -}}
hostPath: {path: {{ . }}, type: Directory}
{{- end }}
{{- with .root.Values.modelStorage.volume -}}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The kubelet's gRPC speaks no TLS: it asks beside the metrics then, where nothing else is told. */}}
{{- define "headway.probes" -}}
{{- $live := "grpc: {port: 9000}" -}}
{{- $ready := "grpc: {port: 9000, service: readiness}" -}}
{{- if .Values.tls.enabled -}}
{{- $live = "httpGet: {port: metrics, path: /live}" -}}
{{- $ready = "httpGet: {port: metrics, path: /ready}" -}}
{{- end -}}
startupProbe:
  {{ $live }}
  periodSeconds: 2
  failureThreshold: 90
  timeoutSeconds: 5
livenessProbe:
  {{ $live }}
  periodSeconds: 10
  failureThreshold: 6
  timeoutSeconds: 5
readinessProbe:
  {{ $ready }}
  periodSeconds: 2
  failureThreshold: 1
  timeoutSeconds: 5
{{- end }}

{{- define "headway.placing" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The head of every pod's spec: no account is mounted unasked, and no Service's name becomes a variable of ours. */}}
{{- define "headway.podHead" -}}
serviceAccountName: {{ if .foreignAccount }}{{ .foreignAccount }}{{ else }}{{ include "headway.name" .root }}{{ with .account }}-{{ . }}{{ end }}{{ end }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - {name: {{ . }}}
{{- end }}
{{- end }}
{{- with default .root.Values.priorityClassName .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext: {{ include "headway.podSecurity" . | nindent 2 }}
{{- end }}

{{- define "headway.podMetadata" -}}
labels: {{ include "headway.labels" . | nindent 2 }}
{{- with .root.Values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with .annotations }}
annotations: {{ . | nindent 2 }}
{{- with $.root.Values.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- else }}
{{- with .root.Values.podAnnotations }}
annotations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A service without state, as a Deployment. */}}
{{- define "headway.service" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "headway.name" $root) .component -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels: {{ include "headway.labels" . | nindent 4 }}
spec:
  {{- if .replicas }}
  replicas: {{ .replicas }}
  {{- end }}
  revisionHistoryLimit: 3
  {{- if eq .strategy.type "RollingUpdate" }}
  minReadySeconds: {{ $root.Values.minReadySeconds }}
  {{- end }}
  strategy: {{ toYaml .strategy | nindent 4 }}
  selector:
    matchLabels: {{ include "headway.selector" . | nindent 6 }}
  template:
    metadata: {{ include "headway.podMetadata" . | nindent 6 }}
    spec:
      {{- include "headway.podHead" . | nindent 6 }}
      {{- include "headway.placing" .values | nindent 6 }}
      terminationGracePeriodSeconds: {{ default 30 .graceSeconds }}
      {{- if .spread }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector: {matchLabels: {{ include "headway.selector" . | fromYaml | toJson }}}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "headway.image" (dict "root" $root "image" $root.Values.image.services) }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [python, -m, {{ printf "headway.%s" .component }}]
          args: {{ toYaml (concat (list "--port" "9000" "--metrics-port" "9090") .args) | nindent 12 }}
          env:
            {{- include "headway.env" $root | nindent 12 }}
            - {name: OMP_NUM_THREADS, value: "1"}
            {{- with .env }}{{ . | nindent 12 }}{{ end }}
          ports:
            - {name: grpc, containerPort: 9000}
            - {name: metrics, containerPort: 9090}
            {{- with .ports }}{{ . | nindent 12 }}{{ end }}
          {{- include "headway.probes" $root | nindent 10 }}
          {{- with .values.resources }}
          resources: {{ toYaml . | nindent 12 }}
          {{- end }}
          securityContext: {{ include "headway.containerSecurity" . | nindent 12 }}
          volumeMounts:
            {{- include "headway.mounts" . | nindent 12 }}
            {{- with .mounts }}{{ . | nindent 12 }}{{ end }}
      volumes:
        {{- include "headway.volumes" . | nindent 8 }}
        {{- with .volumes }}{{ . | nindent 8 }}{{ end }}
{{- end }}

{{- /* The controller's account at the API server, and of no other pod. */}}
{{- define "headway.serviceAccountVolume" -}}
- name: kubernetes
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}
