"""Documents for programs: JSON or YAML of plain dicts, keys in the order in which they were written."""

from __future__ import annotations

from collections.abc import Mapping

FORMATS = ("json", "yaml")


def encode(document: Mapping[str, object], form: str) -> str:
    """Without the final line break."""
    if form == "json":
        import json

        return json.dumps(document, indent=2, ensure_ascii=False)
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120)
    return text.rstrip("\n")
