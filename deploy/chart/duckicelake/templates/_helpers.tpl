{{- define "duckicelake.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end }}

{{- define "duckicelake.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "duckicelake.labels" -}}
{{ include "duckicelake.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "duckicelake.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "duckicelake.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "duckicelake.secret" -}}
{{- if .Values.externalSecret.enabled }}{{ include "duckicelake.name" . }}{{ else }}{{ .Values.existingSecret }}{{ end -}}
{{- end }}

{{- define "duckicelake.check" -}}
{{- if and (not (include "duckicelake.secret" .)) (not .Values.settings.DUCKICELAKE_DATABASE_URL) }}
{{- fail "DUCKICELAKE_DATABASE_URL is missing: name a secret that has it in existingSecret, or enable externalSecret" }}
{{- end }}
{{- if and .Values.externalSecret.enabled .Values.existingSecret }}
{{- fail "existingSecret and externalSecret.enabled are both set: choose one" }}
{{- end }}
{{- if and .Values.externalSecret.enabled (not .Values.externalSecret.store.name) }}
{{- fail "externalSecret.store.name is missing: name the SecretStore" }}
{{- end }}
{{- if and (not .Values.settings.DUCKICELAKE_WAREHOUSE) (not (hasKey .Values.externalSecret.data "DUCKICELAKE_WAREHOUSE")) (not .Values.existingSecret) }}
{{- fail "settings.DUCKICELAKE_WAREHOUSE is missing: s3://<bucket>/<prefix>, or a folder below /data with volume.claimName" }}
{{- end }}
{{- range tuple "DUCKICELAKE_HOST" "DUCKICELAKE_PORT" "DUCKICELAKE_DRAIN_SECONDS" "DUCKICELAKE_SHUTDOWN_SECONDS" "DUCKICELAKE_TLS_CERTIFICATE" "DUCKICELAKE_TLS_KEY" }}
{{- if hasKey $.Values.settings . }}{{ fail (printf "settings.%s is set by the chart: use drainSeconds, shutdownSeconds, tls or service" .) }}{{ end }}
{{- end }}
{{- end }}

{{- define "duckicelake.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  - {name: DUCKICELAKE_DRAIN_SECONDS, value: {{ .Values.drainSeconds | quote }}}
  - {name: DUCKICELAKE_SHUTDOWN_SECONDS, value: {{ .Values.shutdownSeconds | quote }}}
  {{- if .Values.tls.secretName }}
  - {name: DUCKICELAKE_TLS_CERTIFICATE, value: /tls/tls.crt}
  - {name: DUCKICELAKE_TLS_KEY, value: /tls/tls.key}
  {{- end }}
  {{- range $name, $value := .Values.settings }}
  - {name: {{ $name }}, value: {{ kindIs "float64" $value | ternary (printf "%v" ($value | toString | float64 | int64)) ($value | toString) | quote }}}
  {{- end }}
{{- with include "duckicelake.secret" . }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.volume.claimName }}
  - {name: data, mountPath: /data}
  {{- end }}
  {{- if .Values.tls.secretName }}
  - {name: tls, mountPath: /tls, readOnly: true}
  {{- end }}
resources: {{- toYaml .Values.resources | nindent 2 }}
{{- end }}

{{- define "duckicelake.pod" -}}
serviceAccountName: {{ include "duckicelake.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false # else Kubernetes sets DUCKICELAKE_PORT to an address
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: tmp
    emptyDir: {}
  {{- with .Values.volume.claimName }}
  - name: data
    persistentVolumeClaim: {claimName: {{ . }}}
  {{- end }}
  {{- with .Values.tls.secretName }}
  - name: tls
    secret: {secretName: {{ . }}}
  {{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
