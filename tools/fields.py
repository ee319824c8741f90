"""`python -m tools.fields [--check]`: the field names of Kubernetes' types → src/dovetail/kube/files/fields.json.

Read from the OpenAPI document of the pinned module (tools/kubernetes/go.mod), which the build of the control plane has
put into Go's module cache. Only types that the kinds of KINDS reach, and of those only names: the file stays small.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "src" / "dovetail" / "kube" / "files" / "fields.json"
SPEC = Path("api/openapi-spec/swagger.json")
KINDS = (
    *("Pod", "Node", "Namespace", "ResourceQuota", "LimitRange", "PersistentVolume", "PersistentVolumeClaim"),
    *("ReplicationController", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob"),
    *("PriorityClass", "RuntimeClass", "PodGroup", "StorageClass", "CSIDriver", "CSINode", "CSIStorageCapacity"),
)
NOT_FOLLOWED = {"managedFields"}  # fields that only the API server writes
_VERSION = re.compile(r"^\s*k8s\.io/kubernetes (v\S+)", re.MULTILINE)

Json = dict[str, Any]


class NoSource(Exception):
    """Go, or the module in its cache, is missing."""


def source() -> tuple[str, Path]:
    """Version and OpenAPI document of the pinned module. Raises NoSource."""
    found = _VERSION.search((ROOT / "tools" / "kubernetes" / "go.mod").read_text(encoding="utf-8"))
    if found is None:
        raise NoSource("tools/kubernetes/go.mod names no version of k8s.io/kubernetes")
    try:
        cache = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoSource(f"go does not say where its module cache is: {error}") from None
    path = Path(cache) / "k8s.io" / f"kubernetes@{found[1]}" / SPEC
    if not path.exists():
        raise NoSource(f"{path} is not there; `make controlplane` fetches it")
    return found[1], path


def table(version: str, definitions: Json) -> Json:
    """The table of kinds and types.

    kinds: "apiVersion kind" -> type. types: type -> field -> type of its value ("" = not followed).
    """
    kinds, builtin = {}, set()
    for name, definition in definitions.items():
        for row in definition.get("x-kubernetes-group-version-kind", ()):
            group, kind = row["group"], row["kind"]
            if "metadata" in definition.get("properties", {}) and not kind.endswith("List"):
                builtin.add(f"{group}/{kind}")
                if kind in KINDS:
                    kinds[f"{group}/{row['version']} {kind}".lstrip("/")] = name
    types: dict[str, dict[str, str]] = {}
    queue = list(kinds.values())
    while queue:
        name = queue.pop()
        if name in types:
            continue
        types[name] = _fields(name, definitions)
        queue += [held for held in types[name].values() if held]
    names = _short(types)
    return {
        "version": version,
        "builtin": sorted(builtin),
        "kinds": {key: names[kinds[key]] for key in sorted(kinds)},
        "types": {
            names[name]: {field: names.get(held, "") for field, held in sorted(types[name].items())}
            for name in sorted(types, key=names.__getitem__)
        },
    }


def _fields(name: str, definitions: Json) -> dict[str, str]:
    """field -> type of its value, alone or in a list.

    Status is followed for nodes only: users write it only there.
    """
    fields = {}
    for field, schema in definitions[name].get("properties", {}).items():
        held = _held(schema)
        followed = field not in NOT_FOLLOWED and (field != "status" or name.endswith(".Node"))
        fields[field] = held if followed and definitions.get(held, {}).get("properties") else ""
    return fields


def _held(schema: Json) -> str:
    for part in (schema, schema.get("items", {})):
        for one in (part, *part.get("allOf", ())):
            if "$ref" in one:
                return str(one["$ref"]).rpartition("/")[2]
    return ""


def _short(types: dict[str, dict[str, str]]) -> dict[str, str]:
    """type -> short name: `io.k8s.api.core.v1.Pod` → `Pod`. If two types would share it, group and version stay."""
    last: dict[str, list[str]] = {}
    for name in types:
        last.setdefault(name.rpartition(".")[2], []).append(name)
    return {
        name: short if len(names) == 1 else ".".join(name.split(".")[-3:])
        for short, names in last.items()
        for name in names
    }


def written(made: Json) -> str:
    """The table as text, one line per type, so that the diff of a new version is readable."""
    parts = []
    for key, value in made.items():
        if isinstance(value, dict):
            rows = ",\n".join(f"  {json.dumps(name)}: {_row(row)}" for name, row in value.items())
            parts.append(f"{json.dumps(key)}: {{\n{rows}\n}}")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _row(row: str | dict[str, str]) -> str:
    """The fields of a type as one text: "containers=Container nodeName …"."""
    if isinstance(row, str):
        return json.dumps(row)
    return json.dumps(" ".join(f"{field}={held}" if held else field for field, held in row.items()))


def made() -> str:
    """The expected content of the file. Raises NoSource."""
    version, path = source()
    return written(table(version, json.loads(path.read_text(encoding="utf-8"))["definitions"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is out of date")
    options = parser.parse_args()
    text = made()
    if options.check:
        return 0 if TABLE.read_text(encoding="utf-8") == text else 1
    TABLE.write_text(text, encoding="utf-8")
    print(f"{TABLE.relative_to(ROOT)}: {len(text):,} bytes")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoSource as error:
        sys.exit(f"{error}")
