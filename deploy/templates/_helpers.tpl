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
{{- range regexSplit "(?m)^---$" $text -1 }}
{{- $object := fromYaml . }}
{{- if hasKey $object "Error" }}{{ fail (printf "%s: %s" $file $object.Error) }}{{ end }}
{{- if $object }}
{{- $labels := merge (dict) ($object.metadata.labels | default dict) (include "dovetail.labels" $root | fromYaml) $more }}
{{- $_ := set $object.metadata "labels" $labels }}
{{- if eq $object.kind "Deployment" }}
{{- $_ := set (index $object.spec.template.spec.containers 0) "image" (include "dovetail.image" $root) }}
{{- end }}
---
# {{ $file }}
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}
