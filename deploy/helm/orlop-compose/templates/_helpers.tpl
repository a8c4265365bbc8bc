{{- define "orlop-compose.labels" -}}
app.kubernetes.io/name: orlop-compose
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
