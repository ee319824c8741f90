"""Reports fields that Kubernetes does not have, with the likely name. kubectl refuses them, other clients drop them.

The comparison is with the field names of Kubernetes 1.36 (fields.json, made by tools/fields.py), not with the few
fields that we read. Objects with a uid come from an API server, which has dropped unknown fields: they are not checked.
"""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from dovetail.kube.objects.pools import API_VERSION, Cluster, Gpus, Pool
from dovetail.kube.objects.problems import Problems, printable

MOST_UNKNOWN = 20  # fields of one object that are reported
LONGEST_GUESSED = 60  # characters of a name that are compared with others
SIMILAR_FIELDS = 0.75  # of two names, by difflib
OWN_FIELDS = {"nodes": "Pool", "gpus": "Gpus"}  # fields of the cluster file that contain types of ours
OWN_TYPES = frozenset(("Cluster", *OWN_FIELDS.values()))
POD_GROUP_FIELDS = frozenset(("minMember", "minTaskMember", "minResources"))  # of scheduler-plugins' and Volcano's
OLDER_POD_FIELDS = {"workloadRef": ""}  # of Kubernetes 1.35, which 1.36 does not have
DEEPEST_GUESS = 3  # `spec.template.spec` below the wrong field

Fields = Mapping[str, str]  # field -> its type; "" = text, a number, a map of the user's own


class Table(NamedTuple):
    builtin: frozenset[tuple[str, str]]  # (API group, kind) of all built-in kinds of Kubernetes
    kinds: Mapping[str, str]  # "apps/v1 Deployment" -> type
    types: Mapping[str, Fields]


@cache
def table() -> Table:
    raw = msgspec.json.decode(resources.files("dovetail.kube.files").joinpath("fields.json").read_bytes())
    types = {name: dict(_pair(word) for word in row.split()) for name, row in raw["types"].items()}
    types["PodSpec"].update(OLDER_POD_FIELDS)
    kinds = {**raw["kinds"], f"{API_VERSION} Cluster": "Cluster"}
    return Table(frozenset(_group_and_kind(one) for one in raw["builtin"]), kinds, {**types, **_own_types()})


def _own_types() -> dict[str, Fields]:
    """The types of the cluster file, by the structs that read it."""
    rows: dict[str, dict[str, str]] = {
        kind.__name__: {one.encode_name: OWN_FIELDS.get(one.encode_name, "") for one in msgspec.structs.fields(kind)}
        for kind in (Cluster, Pool, Gpus)
    }
    rows["Cluster"].update(dict.fromkeys(("apiVersion", "kind"), ""), metadata="ObjectMeta")
    return dict(rows)


def _pair(word: str) -> tuple[str, str]:
    name, _, held = word.partition("=")
    return name, held


def _group_and_kind(text: str) -> tuple[str, str]:
    group, _, kind = text.rpartition("/")
    return group, kind


def check_object(body: Mapping[str, Any], api_version: str, kind: str, where: str, problems: Problems) -> None:
    """Report every unknown field of an object whose kind and version are in the table."""
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("uid"):
        return
    name = table().kinds.get(f"{api_version} {kind}")
    if name is not None:
        check(body, name, "", where, problems)


def check_pod_group(body: Mapping[str, Any], where: str, problems: Problems) -> None:
    """Report misspelt fields of PodGroups that are custom resources.

    Only names that resemble ours: others are valid there.
    """
    spec = body.get("spec")
    if not isinstance(spec, Mapping) or "minMember" in spec:
        return
    for key in islice(spec, MOST_UNKNOWN):
        if isinstance(key, str) and key not in POD_GROUP_FIELDS and similar(key, {"minMember": ""}):
            message = "is no field of a PodGroup, so that the group has no minimum; did you mean minMember?"
            problems.mistake(where, f"spec.{printable(key)}", message)


def check_spec(body: Mapping[str, Any], spec: msgspec.Struct, where: str, problems: Problems) -> None:
    """Report misspelt fields of a custom resource's spec: only names that resemble the ones we read."""
    known = {one.encode_name: "" for one in msgspec.structs.fields(spec)}
    given = body.get("spec")
    if not isinstance(given, Mapping):
        return
    for key in islice(given, MOST_UNKNOWN):
        likely = similar(key, known) if isinstance(key, str) and key not in known else ""
        if likely and likely not in given:
            problems.mistake(where, f"spec.{printable(key)}", f"is not read; did you mean {likely}?")


def check(body: Any, type_name: str, path: str, where: str, problems: Problems) -> None:
    """The same for a part of an object, at `path`, of this type."""
    look = _Look(where, problems)
    look.at(body, type_name, path, ())
    if look.unnamed:
        problems.mistake(where, path, f"{look.unnamed:,} more fields that Kubernetes does not know")


@dataclass(slots=True)
class _Look:
    """The check of one object."""

    where: str
    problems: Problems
    named: int = 0
    unnamed: int = 0
    types: Mapping[str, Fields] = field(default_factory=lambda: table().types)

    def at(self, body: Any, type_name: str, path: str, above: tuple[tuple[str, str], ...]) -> None:
        """Check one part. `above`: (path, type) of the objects around it, the nearest last."""
        fields = self.types[type_name]
        for number, part in enumerate(body) if isinstance(body, list) else ():
            if isinstance(part, dict):
                self.at(part, type_name, f"{path}[{number}]", above)
        if not isinstance(body, dict):
            return
        inside = (*above, (path, type_name))
        for key, value in body.items():
            held = fields.get(key) if isinstance(key, str) else None
            if held is None:
                self._name(str(key), path, type_name, above)
            elif held and isinstance(value, (dict, list)):
                self.at(value, held, _below(path, key), inside)

    def _name(self, key: str, path: str, type_name: str, above: tuple[tuple[str, str], ...]) -> None:
        if self.named == MOST_UNKNOWN:
            self.unnamed += 1
            return
        self.named += 1
        likely = self._likely(key, path, type_name, above)
        guess = f"; did you mean {likely}?" if likely else ""
        effect = "it changes nothing" if type_name in OWN_TYPES else "kubectl refuses it"
        message = f"is no field of {_title(type_name)}, so that {effect}{guess}"
        self.problems.mistake(self.where, _below(path, printable(key)), message)

    def _likely(self, key: str, path: str, type_name: str, above: tuple[tuple[str, str], ...]) -> str:
        """The path of the same name in an inner or outer object, else a similar name here; "" = none."""
        inside = self._further_in(key, type_name)
        if inside:
            return _below(path, inside)
        for outer, name in reversed(above):
            if key in self.types[name]:
                return _below(outer, key)
        return similar(key, self.types[type_name])

    def _further_in(self, key: str, type_name: str) -> str:
        queue = deque([("", type_name, 0)])
        while queue:
            path, name, depth = queue.popleft()
            for inner, held in self.types[name].items():
                if inner == key and path:
                    return _below(path, inner)
                if held and depth < DEEPEST_GUESS and inner in ("spec", "template", "jobTemplate", "resources"):
                    queue.append((_below(path, inner), held, depth + 1))
        return ""


def similar(name: str, known: Mapping[str, Any]) -> str:
    """The known name that this one resembles; "" = none."""
    lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower()[:LONGEST_GUESSED], lower, n=1, cutoff=SIMILAR_FIELDS)
    return lower[close[0]] if close else ""


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _title(type_name: str) -> str:
    """The type with its article: `a Container`, `an Affinity`."""
    short = type_name.rpartition(".")[2]
    return f"{'an' if short[0] in 'AEIOU' else 'a'} {short}"
