{{/* Labels by which Services, policies and controllers find pods. Argument: list of the root and the component. */}}
{{- define "hacrl-web.selector" -}}
app.kubernetes.io/name: hacrl-web
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Labels of every object. Argument as above. */}}
{{- define "hacrl-web.labels" -}}
{{ include "hacrl-web.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: hacrl-web-{{ (index . 0).Chart.Version }}
{{- end }}

{{/* What holds for every pod. Argument: list of the root, user and group.
     Without enableServiceLinks: false a Service named `hacrl` would set HACRL_PORT, which is a variable of ours. */}}
{{- define "hacrl-web.pod" -}}
enableServiceLinks: false
{{- with (index . 0).Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ index . 1 }}
  runAsGroup: {{ index . 2 }}
  fsGroup: {{ index . 2 }}
  fsGroupChangePolicy: OnRootMismatch # not a walk through all runs at every start
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* What holds for every container. */}}
{{- define "hacrl-web.hardened" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Variables of web, dispatcher, watcher and workers. Argument: the root. */}}
{{- define "hacrl-web.environment" -}}
- name: DATABASE_URL
  value: {{ .Values.database.builtin | ternary (printf "postgres://hacrl@%s-database:5432/hacrl" .Release.Name) .Values.database.address | quote }}
- name: DATABASE_PASSWORD_FILE
  value: /etc/hacrl/secrets/database_password
- name: REDIS_URL
  value: {{ .Values.redis.builtin | ternary (printf "redis://%s-redis:6379/0" .Release.Name) .Values.redis.address | quote }}
- name: REDIS_PASSWORD_FILE
  value: /etc/hacrl/secrets/redis_password
- name: HACRL_SECRET_KEY_FILE
  value: /etc/hacrl/secrets/secret_key
- name: HACRL_HOST
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- $address := dict }}
{{- if .Values.ingress.enabled }}
{{- $address = dict "HACRL_ALLOWED_HOSTS" .Values.ingress.host "HACRL_PUBLIC_URL" (printf "https://%s" .Values.ingress.host) "HACRL_TLS_PROXY" "1" }}
{{- end }}
{{- range $name, $value := merge $address .Values.environment }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* The health check of a role, as the action of a probe. Argument: the role. */}}
{{- define "hacrl-web.health" -}}
exec: {command: [python, -m, hacrl_web.container, health, {{ . }}]}
timeoutSeconds: 20
{{- end }}

{{/* The web migrates the database before it answers, and the others wait for that: five minutes. Argument: the role. */}}
{{- define "hacrl-web.startup" -}}
startupProbe:
  {{- include "hacrl-web.health" . | nindent 2 }}
  periodSeconds: 10
  failureThreshold: 30
{{- end }}

{{/* Where containers of the product write, and their secrets. */}}
{{- define "hacrl-web.mounts" -}}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
- {name: secrets, mountPath: /etc/hacrl/secrets, readOnly: true}
{{- end }}

{{/* The volume of the Secret and that of the data folder. Argument: the root. */}}
{{- define "hacrl-web.secrets" -}}
- name: secrets
  secret: {secretName: {{ .Values.secretName | quote }}, defaultMode: 0440}
{{- end }}
{{- define "hacrl-web.data" -}}
- name: data
  persistentVolumeClaim: {claimName: {{ .Values.data.existingClaim | default (printf "%s-data" .Release.Name) | quote }}}
{{- end }}
