{{- define "relkit.jobSpec" -}}
completions: {{ add .Values.replicas .Values.spares }}
parallelism: {{ add .Values.replicas .Values.spares }}
completionMode: Indexed
backoffLimitPerIndex: {{ .Values.restartCounts }}
podReplacementPolicy: Failed
# By relkit's exit codes: 2 usage, 76 nothing could be saved, 77 saving failed: look first. 5: this node has left
# the job, replace it. 75: saved, start the job again.
podFailurePolicy:
  rules:
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    - action: FailJob
      onExitCodes: {operator: In, values: [2, 76, 77]}
    {{- if eq .Values.engine "job" }}
    - action: Count
      onExitCodes: {operator: In, values: [5, 75]}
    {{- else }}
    - action: Count
      onExitCodes: {operator: In, values: [5]}
    - action: FailIndex
      onExitCodes: {operator: In, values: [75]}
    {{- end }}
template:
  {{- include "relkit.podTemplate" . | nindent 2 }}
{{- end }}

{{- define "relkit.jobSetSpec" -}}
failurePolicy:
  maxRestarts: {{ .top.Values.jobSetRestarts }}
  rules:
    - name: lookfirst
      action: FailJobSet
      onJobFailureReasons: [PodFailurePolicy]
replicatedJobs:
  - name: {{ .name }}
    replicas: 1
    template:
      {{- with .labels }}
      metadata:
        labels:
          {{- toYaml . | nindent 10 }}
      {{- end }}
      spec:
        {{- include "relkit.jobSpec" .top | nindent 8 }}
{{- end }}

{{- define "relkit.replicas" -}}
replicas: {{ .count }}
restartPolicy: OnFailure
template:
  {{- include "relkit.podTemplate" .top | nindent 2 }}
{{- end }}
