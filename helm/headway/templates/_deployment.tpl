{{- /* The same fields under the names that our processes give them: ttftMs becomes ttft_ms. */}}
{{- define "headway.snakecase" -}}
{{- $named := dict -}}
{{- range $name, $value := . }}{{ $_ := set $named (regexReplaceAll "([A-Z])" $name "_${1}" | lower) $value }}{{ end -}}
{{- toJson $named -}}
{{- end }}

{{- define "headway.isEmulated" -}}
{{- range .Values.workers }}{{ if .emulate }}yes{{ end }}{{ end -}}
{{- if .Values.workerPools.emulated }}yes{{ end -}}
{{- end }}

{{- /* The file that the controller reads; its fields are those of services/headway/controller/deployment_file.py. */}}
{{- define "headway.deploymentFile" -}}
{{- $total := 0 -}}
{{- range .Values.workers -}}
{{- $total = add $total (mul (int .cells) (int (include "headway.workersPerCell" .))) -}}
{{- end -}}
{{- $models := list -}}
{{- range .Values.models -}}
{{- $model := include "headway.snakecase" . | fromJson -}}
{{- if .slo }}{{ $_ := set $model "slo" (include "headway.snakecase" .slo | fromJson) }}{{ end -}}
{{- if .replicas }}{{ $_ := set $model "replicas" (include "headway.snakecase" .replicas | fromJson) }}{{ end -}}
{{- $models = append $models $model -}}
{{- end -}}
{{- $file := dict "models" $models "workers" (max 1 $total) "queue_policy" .Values.queuePolicy "log_level" .Values.logLevel -}}
{{- $_ := set $file "profile" .Values.profile -}}
{{- $_ := set $file "answer_overhead_ms" .Values.answerOverheadMs -}}
{{- $_ := set $file "is_emulated" (ne (include "headway.isEmulated" .) "") -}}
{{- $_ := set $file "limits" (include "headway.snakecase" .Values.limits | fromJson) -}}
{{- toYaml $file -}}
{{- end }}
