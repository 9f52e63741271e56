{{- /* The file that the controller makes jobs of; see services/headway/controller/kubernetes/fetch_job.py. They know nothing
of the release's secrets: what they read is anybody's, and they only write to the volume. */}}
{{- define "headway.fetchTemplate" -}}
{{- $fetch := .Values.modelStorage.fetch -}}
{{- $scope := dict "root" . "component" "fetch" "foreignAccount" $fetch.serviceAccountName -}}
metadata:
  name: {{ include "headway.name" . }}-fetch
  labels:
    serving.headway.dev/fetch: "true"
    {{- include "headway.labels" $scope | nindent 4 }}
spec:
  backoffLimit: 2
  ttlSecondsAfterFinished: 300
  template:
    metadata:
      {{- include "headway.podMetadata" $scope | nindent 6 }}
    spec:
      {{- include "headway.podHead" $scope | nindent 6 }}
      {{- include "headway.placing" $fetch | nindent 6 }}
      restartPolicy: Never
      containers:
        - name: fetch
          image: {{ include "headway.image" (dict "root" . "image" .Values.image.services) }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          command: [headway, fetch]
          terminationMessagePolicy: FallbackToLogsOnError
          env:
            - {name: HOME, value: /tmp}
            - {name: HF_HUB_DISABLE_TELEMETRY, value: "1"}
            {{- if $fetch.registrySecret }}
            - {name: DOCKER_CONFIG, value: /etc/headway/registry}
            {{- end }}
            {{- with $fetch.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with $fetch.credentialsSecret }}
          envFrom: [{secretRef: {name: {{ . }}}}]
          {{- end }}
          resources: {{ toYaml $fetch.resources | nindent 12 }}
          securityContext: {{ include "headway.containerSecurity" . | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            - {name: models, mountPath: {{ .Values.modelStorage.mountPath }}}
            {{- if $fetch.registrySecret }}
            - {name: registry, mountPath: /etc/headway/registry, readOnly: true}
            {{- end }}
      volumes:
        - {name: tmp, emptyDir: {}}
        - name: models
          {{- include "headway.modelVolume" (dict "root" . "readOnly" false) | nindent 10 }}
        {{- with $fetch.registrySecret }}
        - {name: registry, secret: {secretName: {{ . }}, items: [{key: .dockerconfigjson, path: config.json}], defaultMode: 0440}}
        {{- end }}
{{- end }}
