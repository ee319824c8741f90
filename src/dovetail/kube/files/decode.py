"""Documents → typed objects: which kinds are known, which are ignored, and which field has the wrong type."""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

import msgspec

from dovetail.kube.files.custom_workloads import TEMPLATES_ONLY, Expanded, NotPlain, expanded, makes_pods, template_in
from dovetail.kube.files.documents import Document
from dovetail.kube.files.known_fields import check, check_object, check_pod_group, check_spec, table
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.budgets import PodDisruptionBudget
from dovetail.kube.objects.domain_objects import TOPOLOGY_KINDS, TOPOLOGY_KINDS_WITHOUT_NAMESPACE
from dovetail.kube.objects.gangs import JOB_SET_GROUP, KUBERNETES, JobSet, KubernetesWorkload, PodGroup
from dovetail.kube.objects.pools import API_VERSION, Cluster
from dovetail.kube.objects.problems import Problems, printable
from dovetail.kube.objects.queues import KAI_GROUP, KOORDINATOR, QUEUE_KINDS, SCHEDULER_PLUGINS, VOLCANO_GROUP
from dovetail.kube.objects.topologies import TOPOLOGY_GROUP, NodeResourceTopology
from dovetail.kube.objects.volumes import STORAGE_GROUP, VOLUME_KINDS, VOLUME_KINDS_WITHOUT_NAMESPACE

T = TypeVar("T")
POD_GROUP_API_GROUPS = (SCHEDULER_PLUGINS, KOORDINATOR, KUBERNETES, VOLCANO_GROUP, KAI_GROUP)
# Kinds of operators that also describe a gang, and the type in which they do.
DESCRIBE_GANGS: dict[tuple[str, str], type[JobSet]] = {(JOB_SET_GROUP, "JobSet"): JobSet}

# (API group, kind) -> type. A kind of the same name in another group is a different kind.
TYPE_OF_KIND: dict[tuple[str, str], type[Any]] = {
    ("", "Node"): objects.Node,
    ("", "Pod"): objects.Pod,
    ("", "ResourceQuota"): objects.ResourceQuota,
    ("", "LimitRange"): objects.LimitRange,
    ("", "Namespace"): objects.Namespace,
    ("", "Service"): objects.Service,
    ("scheduling.k8s.io", "PriorityClass"): objects.PriorityClass,
    ("policy", "PodDisruptionBudget"): PodDisruptionBudget,
    (TOPOLOGY_GROUP, "NodeResourceTopology"): NodeResourceTopology,
    ("node.k8s.io", "RuntimeClass"): objects.RuntimeClass,
    ("", "ReplicationController"): objects.ReplicationController,
    ("dovetail.dev", "Cluster"): Cluster,
    ("batch", "Job"): objects.Workload,
    **{("apps", kind): objects.Workload for kind in ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")},
    **{("extensions", kind): objects.Workload for kind in ("Deployment", "ReplicaSet", "DaemonSet")},
    **{(group, "PodGroup"): PodGroup for group in POD_GROUP_API_GROUPS},
    (KUBERNETES, "Workload"): KubernetesWorkload,
    **VOLUME_KINDS,
    **QUEUE_KINDS,
    **TOPOLOGY_KINDS,
}
GROUP_VERSIONS = {
    "": "v1",
    "apps": "apps/v1",
    "batch": "batch/v1",
    "dovetail.dev": API_VERSION,
    STORAGE_GROUP: f"{STORAGE_GROUP}/v1",
}
WITHOUT_NAMESPACE = frozenset(
    {
        *("Node", "Namespace", "PriorityClass", "RuntimeClass", "Cluster", "Queue", "NodeResourceTopology"),
        *VOLUME_KINDS_WITHOUT_NAMESPACE,
        *TOPOLOGY_KINDS_WITHOUT_NAMESPACE,
    }
)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Found:
    """A typed object and its position in the input."""

    where: str  # "a.yaml#2 Pod default/web"
    kind: str
    group: str  # API group
    namespace: str  # "" for kinds without
    name: str
    value: Any

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.group, self.kind, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class CustomWorkload:
    """An operator's object that creates pods; its templates, typed, in the order of its sets."""

    metadata: objects.Meta
    made: Expanded
    templates: tuple[objects.PodTemplate, ...]
    gang: JobSet | None = None  # the object as it describes a gang; None = its kind does not


class NotPlaced(NamedTuple):
    """An object whose pods are not in the plan."""

    kind: str
    namespace: str
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Objects:
    """All objects that could be read, by kind, and the number of objects of other kinds."""

    by_kind: Mapping[str, tuple[Found, ...]]
    ignored: Mapping[str, int] = field(default_factory=dict)
    custom: tuple[Found, ...] = ()  # values are CustomWorkloads
    not_placed: tuple[NotPlaced, ...] = ()

    def of(self, kind: str) -> tuple[Found, ...]:
        return self.by_kind.get(kind, ())


def decode(documents: Iterable[Document], problems: Problems) -> Objects:
    """Typed objects. Structural errors are fatal; the caller raises them after all are collected."""
    documents = tuple(documents)
    names = _generated_names(documents)
    found: dict[tuple[str, str, str, str], tuple[Found, Document]] = {}
    ignored: Counter[str] = Counter()
    not_placed: list[NotPlaced] = []
    for document in documents:
        known = TYPE_OF_KIND.get((document.group, document.kind))
        if document.kind == "CronJob":
            problems.note(document.where, "", "a CronJob is not placed: its Jobs are, once they exist")
        name = names.get(document.place, "")
        if known is None:
            why = _why_not_placed(document)
            if why:
                not_placed.append(_not_placed(document, name, why))
                _warn_of_likeness(document, problems)
                continue
            if not makes_pods(document.group, document.kind):
                ignored[printable(document.kind)] += 1
                _warn_of_likeness(document, problems)
                continue
        item = _found(document, known, name, problems) if known else _custom(document, name, problems)
        if item is None:
            continue
        if known:
            _check_fields(document, item, problems)
        if item.key in found:
            _complain_of_duplicate(item, document, found[item.key], problems)
        else:
            found[item.key] = (item, document)
    by_kind: dict[str, list[Found]] = {}
    custom = tuple(item for item, _ in found.values() if isinstance(item.value, CustomWorkload))
    for item, _ in found.values():
        if not isinstance(item.value, CustomWorkload):  # a Job of Volcano is not a Job of Kubernetes
            by_kind.setdefault(item.kind, []).append(item)
    kinds = {kind: tuple(items) for kind, items in by_kind.items()}
    return Objects(kinds, dict(sorted(ignored.items())), custom, tuple(sorted(set(not_placed))))


def _check_fields(document: Document, item: Found, problems: Problems) -> None:
    check_object(document.body, document.api_version, document.kind, item.where, problems)
    if document.kind == "PodGroup" and document.group != "scheduling.k8s.io":
        check_pod_group(document.body, item.where, problems)
    elif (document.group, document.kind) in (QUEUE_KINDS | TOPOLOGY_KINDS):
        check_spec(document.body, item.value.spec, item.where, problems)


def _why_not_placed(document: Document) -> str:
    """Why the pods of an object of another kind cannot be planned; "" = it creates none, or they can."""
    key = (document.group, document.kind)
    if document.reduced:
        return ""
    if makes_pods(*key):
        try:
            expanded(*key, document.body)
        except NotPlain as error:
            return str(error)
        return ""
    if key in table().builtin or key in TEMPLATES_ONLY:
        return ""
    path = template_in(document.body)
    return f"an unknown kind with a pod template ({path}): how many pods it makes is not known" if path else ""


def _not_placed(document: Document, generated: str, why: str) -> NotPlaced:
    metadata = document.body.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    where = namespace if isinstance(namespace, str) and namespace else "default"
    name = document.name or generated or document.place
    return NotPlaced(printable(document.kind), printable(where), printable(name), why)


def _custom(document: Document, generated: str, problems: Problems) -> Found | None:
    item = _found(document, objects.Named, generated, problems)
    if item is None:
        return None
    form = DESCRIBE_GANGS.get((document.group, document.kind))
    gang = convert(document.body, form, item.where, problems) if form is not None else None
    if document.reduced:  # its pods exist
        return replace(item, value=CustomWorkload(item.value.metadata, Expanded(), (), gang))
    made = expanded(document.group, document.kind, document.body)
    templates = []
    for one in made.sets:
        template = convert(one.template, objects.PodTemplate, item.where, problems, one.path)
        if template is None:
            return None
        if not item.value.metadata.uid:
            _check_template(one.path, one.template, item.where, problems)
        templates.append(template)
    return replace(item, value=CustomWorkload(item.value.metadata, made, tuple(templates), gang))


def _check_template(path: str, template: Mapping[str, Any], where: str, problems: Problems) -> None:
    """Check the fields of a template.

    Where the pod spec is mixed with an operator's own fields, unknown fields are not reported: only the operator knows
    them.
    """
    if path.endswith("emplate"):
        check(template, "PodTemplateSpec", path, where, problems)


def _warn_of_likeness(document: Document, problems: Problems) -> None:
    """Warn of a kind that resembles one of ours: it is more likely misspelt than a different kind."""
    groups = sorted({group for group, kind in TYPE_OF_KIND if kind == document.kind and group != "extensions"})
    if groups and document.group in ("", "apps", "batch", "core"):
        wanted = " or ".join(GROUP_VERSIONS.get(group, f"{group}/…") for group in groups)
        message = f"is not that of a {document.kind}, which is {wanted}; the object is ignored"
        problems.warning(document.where, "apiVersion", message)
        return
    names = {kind.lower(): kind for _, kind in TYPE_OF_KIND}
    close = difflib.get_close_matches(document.kind.lower()[:60], names, n=1, cutoff=0.85)
    if close and names[close[0]] != document.kind:
        message = f"{printable(document.kind)!r} is ignored; did you mean {names[close[0]]}?"
        problems.warning(document.where, "kind", message)


def _generated_names(documents: Sequence[Document]) -> dict[str, str]:
    """place -> name of each object that has only a generateName: numbered over all files, whatever their order."""
    unnamed = {document.place: document for document in documents if not document.name and document.generate_name}
    if not unnamed:
        return {}
    taken = {(document.kind, document.name) for document in documents}
    result = {}
    numbers: defaultdict[tuple[str, str], Iterator[int]] = defaultdict(partial(count, 1))  # kind and stem -> the next
    for place in sorted(unnamed, key=_file_and_number):
        document = unnamed[place]
        stem = document.generate_name[:200]
        names = (f"{stem}{number}" for number in numbers[document.kind, stem])
        result[place] = next(name for name in names if (document.kind, name) not in taken)
        taken.add((document.kind, result[place]))
    return result


def _file_and_number(place: str) -> tuple[str, int]:
    source, _, number = place.rpartition("#")
    return source, int(number)


def _found(document: Document, known: type[Any], generated: str, problems: Problems) -> Found | None:
    if known is Cluster and document.api_version != API_VERSION:
        problems.fatal(document.where, "apiVersion", f"a Cluster file of ours has apiVersion {API_VERSION}")
        return None
    value = convert(document.body, known, document.where, problems)
    if value is None:
        return None
    if known is Cluster:
        return Found(document.where, document.kind, document.group, "", document.place, value)
    meta: objects.Meta = value.metadata
    name = meta.name or generated
    namespace = "" if document.kind in WITHOUT_NAMESPACE else meta.namespace or "default"
    for path, text in (("metadata.name", name), ("metadata.namespace", namespace or "default")):
        if not _NAME.match(text):
            said = "is missing" if not text else f"{printable(text)!r} is not a name Kubernetes allows"
            problems.fatal(document.where, path, f"{said}; use letters, digits, '-' and '.', 253 at the most")
            return None
    full = f"{namespace}/{name}" if namespace else name
    where = f"{document.place} {document.kind} {full}"
    return Found(where, document.kind, document.group, namespace, name, value)


def convert(body: Any, known: type[T], where: str, problems: Problems, at: str = "") -> T | None:
    """The typed object, or None and a fatal problem that names the field. `at`: its path in the document."""
    error: Exception
    try:
        return msgspec.convert(body, known)
    except (msgspec.ValidationError, RecursionError, OverflowError) as first:
        error = first
    try:  # null is rare in files, and removing it costs a copy, so it is tried second
        body = objects.without_nulls(body)
        return msgspec.convert(body, known)
    except msgspec.ValidationError as second:
        error = second
    except (RecursionError, OverflowError) as second:
        error = second
    path, complaint = _explain(str(error) or "is nested too deeply", body)
    problems.fatal(where, ".".join(part for part in (at, path) if part), complaint)
    return None


def _complain_of_duplicate(item: Found, document: Document, other: tuple[Found, Document], problems: Problems) -> None:
    try:
        same = document.body == other[1].body
    except RecursionError:
        same = False
    if same:
        problems.note(item.where, "metadata.name", f"is the same object as {other[0].where}; counted once")
    else:
        problems.fatal(item.where, "metadata.name", f"is also defined, differently, by {other[0].where}; keep one")


_AT = re.compile(r"^(?P<what>.*?)(?: - at (?P<key>`key` in )?`(?P<path>[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_GOT = re.compile(r"got `(\w+)`")
_WORDS = {
    "str": "text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def _explain(error: str, body: Any) -> tuple[str, str]:
    """msgspec's message as (field, sentence): "Expected `str`, got `bool` - at `$.metadata.labels[...]`"."""
    match = _AT.match(error)
    what, key, path = (match["what"], match["key"], match["path"] or "$") if match else (error, None, "$")
    missing = _MISSING.match(what)
    if missing is not None:
        return f"{_resolve(path, body, '')}.{missing[1]}".lstrip("."), "is missing"
    got = _GOT.search(what)
    field_path = _resolve(path, body, got[1] if got and not key else "")
    said = re.sub(r"`([^`]*)`", lambda word: " or ".join(_WORDS.get(w, w) for w in word[1].split(" | ")), what)
    said = said.replace("Expected text", "must be text (put it in quotes)").replace("Expected", "must be")
    said = said.replace(", got", ", not")
    return field_path, f"a key {said}" if key else said


def _resolve(path: str, body: Any, got: str) -> str:
    """The path with `[...]` replaced by the key whose value has the reported type."""
    candidates: list[tuple[str, Any]] = [("", body)]
    for name, index in _STEP.findall(path):
        candidates = list(_descend(candidates, name, index))
    for text, value in candidates:
        if not got or _type_name(value) == got:
            return text.lstrip(".")
    return path.removeprefix("$").lstrip(".")


def _descend(candidates: list[tuple[str, Any]], name: str, index: str) -> Iterator[tuple[str, Any]]:
    for text, value in candidates:
        if name and isinstance(value, dict):
            yield f"{text}.{name}", value.get(name)
        elif index == "..." and isinstance(value, dict):
            yield from ((f"{text}.{printable(str(key))}", part) for key, part in value.items())
        elif index.isdigit() and isinstance(value, list) and int(index) < len(value):
            yield f"{text}[{index}]", value[int(index)]


def _type_name(value: Any) -> str:
    names = {str: "str", bool: "bool", int: "int", float: "float", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value), type(value).__name__)
