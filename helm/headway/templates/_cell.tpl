{{- /* The file that the controller makes cells of; see services/headway/controller/kubernetes/cell_pod.py. */}}
{{- define "headway.cellTemplate" -}}
{{- $scope := dict "root" . "component" "worker" "hasModels" true -}}
emulated_image: {{ include "headway.image" (dict "root" . "image" .Values.image.services) }}
pod:
  metadata:
    {{- regexReplaceAll "^labels:" (include "headway.podMetadata" $scope) "labels:\n  headway/role: worker" | nindent 4 }}
  spec:
    {{- include "headway.podHead" $scope | nindent 4 }}
    containers:
      - name: cell
        image: {{ include "headway.image" (dict "root" . "image" .Values.image.worker) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        command: [python, -m, headway.controller.cell]
        args: [--port, "9000", --metrics-port, "9090", --first-worker-port, "9100", --first-worker-metrics-port, "9200", --log-dir, /tmp/headway-logs, --ready-without-plan, --queue-policy, {{ .Values.queuePolicy }}]
        env:
          {{- include "headway.env" . | nindent 10 }}
        ports:
          - {name: grpc, containerPort: 9000}
          - {name: metrics, containerPort: 9090}
        {{- include "headway.probes" . | nindent 8 }}
        securityContext: {{ include "headway.containerSecurity" . | nindent 10 }}
        volumeMounts:
          {{- include "headway.mounts" $scope | nindent 10 }}
    volumes:
      {{- include "headway.volumes" $scope | nindent 6 }}
{{- end }}
