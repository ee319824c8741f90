{{/* Labels of every object; the first one is that of kustomization.yaml. */}}
{{- define "dovetail.labels" -}}
app.kubernetes.io/part-of: dovetail
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "dovetail.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end -}}
{{- end }}

{{/*
Write the values that concern every pod into a Deployment of a file, and those of the scheduler into the extender's:
  include "dovetail.deployment" (list $ $object)
*/}}
{{- define "dovetail.deployment" -}}
{{- $values := (index . 0).Values -}}
{{- $object := index . 1 -}}
{{- $template := $object.spec.template -}}
{{- $container := index $template.spec.containers 0 -}}
{{- $_ := set $container "image" (include "dovetail.image" (index . 0)) -}}
{{- with $values.image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end -}}
{{- range $key := list "imagePullSecrets" "tolerations" "affinity" -}}
{{- with index $values $key }}{{ $_ := set $template.spec $key . }}{{ end -}}
{{- end -}}
{{- $_ := set $template.spec "nodeSelector" $values.nodeSelector -}}
{{- $_ := set $template.spec "priorityClassName" $values.priorityClassName -}}
{{- range $template.spec.topologySpreadConstraints }}{{ $_ := set . "whenUnsatisfiable" $values.spread }}{{ end -}}
{{- $_ := set $template.metadata "labels" (merge (dict) $template.metadata.labels $values.podLabels) -}}
{{- with $values.podAnnotations }}{{ $_ := set $template.metadata "annotations" . }}{{ end -}}
{{- if eq $object.metadata.name "dovetail-extender" -}}
{{- $_ := set $object.spec "replicas" $values.replicas -}}
{{- $_ := set $container "resources" $values.resources -}}
{{- $_ := set $container "args" (concat $container.args $values.extraArgs) -}}
{{- $seal := dict "secretName" $values.sealKey.secretName "optional" (not $values.sealKey.required) "defaultMode" 0440 -}}
{{- range $template.spec.volumes }}{{ if eq .name "seal" }}{{ $_ := set . "secret" $seal }}{{ end }}{{ end -}}
{{- end -}}
{{- end }}

{{/*
The objects of one file beside this folder, in the release's namespace and with the release's labels:
  include "dovetail.shipped" (list $ "rbac.yaml")
A third item, if any, is a dict of further labels.
*/}}
{{- define "dovetail.shipped" -}}
{{- $root := index . 0 -}}
{{- $file := index . 1 -}}
{{- $more := dict -}}
{{- if gt (len .) 2 }}{{ $more = index . 2 }}{{ end -}}
{{- $text := $root.Files.Get $file | required (printf "the chart has no file %s" $file) -}}
{{- $text = regexReplaceAll "\\b(namespaces?: \\[?)kube-system\\b" $text (printf "${1}%s" $root.Release.Namespace) -}}
{{- if ne $root.Release.Namespace "kube-system" }}
{{- $text = replace "values: [kube-system]" (printf "values: [kube-system, %s]" $root.Release.Namespace) $text }}
{{- end }}
{{- $text = replace "kubernetes.io/metadata.name: monitoring" (printf "kubernetes.io/metadata.name: %s" $root.Values.networkPolicy.metricsNamespace) $text }}
{{- range regexSplit "(?m)^---$" $text -1 }}
{{- $object := fromYaml . }}
{{- if hasKey $object "Error" }}{{ fail (printf "%s: %s" $file $object.Error) }}{{ end }}
{{- /* A policy for the webhook's port alone would close the port of /metrics. */}}
{{- if and (eq ($object.kind | default "") "NetworkPolicy") (not $root.Values.networkPolicy.enabled) }}{{ $object = dict }}{{ end }}
{{- if $object }}
{{- $labels := merge (dict) ($object.metadata.labels | default dict) (include "dovetail.labels" $root | fromYaml) $more }}
{{- $_ := set $object.metadata "labels" $labels }}
{{- if eq $object.kind "Deployment" }}{{ include "dovetail.deployment" (list $root $object) }}{{ end }}
---
# {{ $file }}
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}
