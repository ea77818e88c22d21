{{- /* The same objects as relkit/kubernetes makes: tests/unit/kubernetes compares them. */}}

{{- define "relkit.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end }}

{{- define "relkit.selector" -}}
app.kubernetes.io/name: relkit
app.kubernetes.io/instance: {{ include "relkit.name" .top }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "relkit.labels" -}}
{{ include "relkit.selector" . }}
{{- with omit .top.Values.labels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "relkit.metadata" -}}
name: {{ .name }}
{{- with .top.Values.namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "relkit.labels" . | nindent 2 }}
{{- end }}

{{- define "relkit.jobMetadata" -}}
{{ include "relkit.metadata" (dict "top" . "name" (include "relkit.name" .) "component" "trainer") }}
{{- if and (eq .Values.gang.scheduler "kueue") .Values.gang.queue }}
  kueue.x-k8s.io/queue-name: {{ .Values.gang.queue }}
{{- end }}
{{- end }}

{{- define "relkit.options" -}}
{{- $options := list "--nnodes" (toString .Values.replicas) }}
{{- with .Values.nprocPerNode }}{{ $options = concat $options (list "--nproc-per-node" (toString .)) }}{{ end }}
{{- $options = concat $options (list "--max-restarts" (toString .Values.maxRestarts)) }}
{{- with .Values.spares }}{{ $options = concat $options (list "--spares" (toString .)) }}{{ end }}
{{- $options = concat $options (list "--flash-timeout" (toString .Values.flashTimeoutSeconds)) }}
{{- if .Values.store.enabled }}
{{- $endpoint := printf "%s-store:%v" (include "relkit.name" .) .Values.store.port }}
{{- $options = concat $options (list "--rdzv-backend" "c10d" "--rdzv-endpoint" $endpoint "--rdzv-conf" "is_host=0" "--rdzv-id" "$(RUN_ID)") }}
{{- end }}
{{- if .Values.topoMapper.enabled }}{{ $options = concat $options (list "--topology" "/etc/relkit/topology/topology_config") }}{{ end }}
{{- toJson $options }}
{{- end }}

{{- define "relkit.command" -}}
{{- $options := include "relkit.options" . | fromJsonArray }}
{{- $command := .Values.command }}
{{- if and (ge (len $command) 2) (eq (first $command) "relkit") (eq (index $command 1) "launch") }}
{{- toJson (concat (slice $command 0 2) $options (slice $command 2)) }}
{{- else }}
{{- $words := list }}
{{- $text := printf "relkit launch %s" (join " " $options) | replace "$" "$$" }}
{{- range $command }}{{ $words = append $words (regexReplaceAll "\\brelkit launch\\b" . $text) }}{{ end }}
{{- if eq (toJson $words) (toJson $command) }}
{{- fail "the command calls no relkit launch: write command: [relkit, launch, train.py], or a shell with that in it" }}
{{- end }}
{{- toJson $words }}
{{- end }}
{{- end }}

{{- define "relkit.hasShm" -}}
{{- range .Values.volumeMounts }}{{ if eq .mountPath "/dev/shm" }}yes{{ end }}{{ end }}
{{- end }}

{{- define "relkit.container" -}}
name: {{ dict "trainjob" "node" "pytorchjob" "pytorch" | dig .Values.engine "main" }}
image: {{ required "image is empty" .Values.image | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
command: {{ include "relkit.command" . }}
env:
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  - name: NODE_IP
    valueFrom: {fieldRef: {fieldPath: status.hostIP}}
  - name: NODE_NUM
    value: {{ toString .Values.replicas | quote }}
  {{- if .Values.store.enabled }}
  - name: RUN_ID
    {{- if eq .Values.engine "pytorchjob" }}
    value: {{ include "relkit.name" . }}
    {{- else }}
    valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/controller-uid']"}}
    {{- end }}
  {{- end }}
  {{- with .Values.secretName }}
  - name: RELKIT_SECRET
    valueFrom: {secretKeyRef: {name: {{ . }}, key: secret}}
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
lifecycle:
  preStop: {exec: {command: [relkit, k8s, stop]}}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $mounts := list }}
{{- if not (include "relkit.hasShm" .) }}{{ $mounts = append $mounts (dict "name" "relkit-shm" "mountPath" "/dev/shm") }}{{ end }}
{{- if .Values.topoMapper.enabled }}{{ $mounts = append $mounts (dict "name" "relkit-topology" "mountPath" "/etc/relkit/topology" "readOnly" true) }}{{ end }}
{{- with concat $mounts .Values.volumeMounts }}
volumeMounts:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "relkit.podSpec" -}}
{{- if ne .Values.engine "pytorchjob" }}
restartPolicy: Never
{{- end }}
terminationGracePeriodSeconds: {{ add .Values.flashTimeoutSeconds 60 }}
automountServiceAccountToken: false
{{- if eq .Values.engine "job" }}
subdomain: {{ include "relkit.name" . }}
{{- end }}
{{- if eq .Values.gang.scheduler "volcano" }}
schedulerName: volcano
{{- end }}
{{- $container := include "relkit.container" . | fromYaml }}
{{- range $key, $value := .Values.container }}{{ $_ := set $container $key $value }}{{ end }}
containers:
  - {{- toYaml $container | nindent 4 }}
{{- $volumes := list }}
{{- if not (include "relkit.hasShm" .) }}{{ $volumes = append $volumes (dict "name" "relkit-shm" "emptyDir" (dict "medium" "Memory" "sizeLimit" .Values.shmSize)) }}{{ end }}
{{- if .Values.topoMapper.enabled }}{{ $volumes = append $volumes (dict "name" "relkit-topology" "configMap" (dict "name" .Values.topoMapper.configMap)) }}{{ end }}
{{- with concat $volumes .Values.volumes }}
volumes:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "relkit.podTemplate" -}}
{{- $annotations := deepCopy .Values.annotations }}
{{- $gang := .Values.gang }}
{{- if and (eq $gang.scheduler "volcano") (ne .Values.engine "pytorchjob") }}
{{- $_ := set $annotations "scheduling.k8s.io/group-name" (include "relkit.name" .) }}
{{- else if and (eq $gang.scheduler "kueue") $gang.topology }}
{{- $_ := set $annotations (printf "kueue.x-k8s.io/podset-%s-topology" (ternary "required" "preferred" $gang.required)) $gang.topology }}
{{- end }}
metadata:
  labels:
    {{- include "relkit.labels" (dict "top" . "component" "trainer") | nindent 4 }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- $spec := include "relkit.podSpec" . | fromYaml }}
{{- range $key, $value := .Values.podSpec }}{{ $_ := set $spec $key $value }}{{ end }}
spec:
  {{- toYaml $spec | nindent 2 }}
{{- end }}
