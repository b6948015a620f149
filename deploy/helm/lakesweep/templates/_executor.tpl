{{/* What Spark makes executor pods from. It adds the image, the arguments, its variables and its local directories. */}}
{{- define "lakesweep.executor" -}}
apiVersion: v1
kind: Pod
metadata:
  labels: {{- include "lakesweep.executorLabels" . | nindent 4 }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {{- include "lakesweep.podSecurity" . | nindent 4 }}
  containers:
    - name: executor
      {{- with .Values.spark.executor.s3ExistingSecret }}
      envFrom:
        - secretRef: { name: {{ . }} }
      {{- end }}
      securityContext: {{- include "lakesweep.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - { name: tmp, mountPath: /tmp }
        - { name: home, mountPath: /var/lib/lakesweep }
  volumes:
    - name: tmp
      emptyDir: {}
    - name: home
      emptyDir: {}
{{- end -}}
