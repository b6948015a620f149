{{/* The name of everything: the release's, with the chart's unless it says so already. */}}
{{- define "lakesweep.name" -}}
{{- if contains "lakesweep" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-lakesweep" (.Release.Name | trunc 40 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "lakesweep.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "lakesweep.name" .) -}}
{{- end -}}

{{- define "lakesweep.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- with .Values.image.digest -}}{{- printf "@%s" . -}}{{- end -}}
{{- end -}}

{{/* What pods are selected by. It never changes between versions. */}}
{{- define "lakesweep.selector" -}}
app.kubernetes.io/name: lakesweep
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lakesweep.labels" -}}
{{ include "lakesweep.selector" . }}
app.kubernetes.io/part-of: lakesweep
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "lakesweep.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "lakesweep.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* Executors carry this label, which no other release's do. */}}
{{- define "lakesweep.executorLabels" -}}
app.kubernetes.io/part-of: lakesweep
lakesweep/executor-of: {{ include "lakesweep.name" . }}
{{- end -}}

{{/* engine.spark.conf, as JSON. $(…) is filled in by Kubernetes. */}}
{{- define "lakesweep.sparkConf" -}}
{{- $name := include "lakesweep.name" . -}}
{{- $volume := "spark.kubernetes.executor.volumes.persistentVolumeClaim.scratch" -}}
{{- $own := dict
  "spark.driver.host" "$(POD_IP)"
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.driver.port" "7078"
  "spark.driver.blockManager.port" "7079"
  "spark.driver.memory" .Values.spark.driverMemory
  "spark.kubernetes.driver.pod.name" "$(POD_NAME)"
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.container.image" (include "lakesweep.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.authenticate.executor.serviceAccountName" (printf "%s-executor" $name)
  "spark.kubernetes.executor.podTemplateFile" "/etc/lakesweep/executor.yaml"
  "spark.kubernetes.executor.podTemplateContainerName" "executor"
  (printf "%s.mount.path" $volume) "/mnt/scratch"
  (printf "%s.options.claimName" $volume) (.Values.spark.scratch.existingClaim | default (printf "%s-scratch" $name))
  "spark.pyspark.python" "/opt/lakesweep/bin/python"
  "spark.executor.cores" .Values.spark.executor.cores
  "spark.executor.memory" .Values.spark.executor.memory
  "spark.executor.memoryOverhead" .Values.spark.executor.memoryOverhead
  "spark.dynamicAllocation.enabled" "true"
  "spark.dynamicAllocation.shuffleTracking.enabled" "true"
  "spark.dynamicAllocation.minExecutors" "0"
  "spark.dynamicAllocation.maxExecutors" (toString .Values.spark.maxExecutors)
  "spark.dynamicAllocation.executorIdleTimeout" "120s"
-}}
{{- if .Values.image.pullSecrets -}}
{{- $_ := set $own "spark.kubernetes.container.image.pullSecrets" (join "," .Values.image.pullSecrets) -}}
{{- end -}}
{{- merge (deepCopy .Values.spark.conf) $own | toJson -}}
{{- end -}}
