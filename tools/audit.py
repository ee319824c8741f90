"""`python -m tools.audit [FOLDER]`: known vulnerabilities of the pinned packages.

FOLDER holds advisories in OSV's format (JSON or YAML), such as a clone of PyPA's advisory-database; then nothing is
sent anywhere. Without FOLDER, pip-audit asks its service, if it is installed. Exit codes: 0 no vulnerability is known,
1 at least one is known, 3 there is no database, so nothing was checked.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parent.parent
FILES = ("deploy/requirements-live.txt", "deploy/requirements-build.txt")
NOTHING_KNOWN, VULNERABLE, NO_DATABASE = 0, 1, 3
_PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NoDatabase(Exception):
    """There is no database of advisories, or it cannot be reached."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    package: str
    version: str
    advisory: str
    summary: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}: {self.advisory}: {self.summary}"


def pins() -> dict[str, str]:
    """Name -> version of every package that the image and its build install."""
    return dict(pin for name in FILES for pin in _PIN.findall((ROOT / name).read_text(encoding="utf-8")))


def from_folder(folder: Path, pinned: dict[str, str]) -> tuple[list[Finding], int]:
    """The findings of the advisories in a folder for these packages, and the number of advisories."""
    found: set[Finding] = set()
    count = 0
    for advisory in _advisories(folder):
        count += 1
        if advisory.get("withdrawn"):
            continue
        for affected in advisory.get("affected") or ():
            package = affected.get("package") or {}
            name = re.sub(r"[-_.]+", "-", str(package.get("name", ""))).lower()
            if package.get("ecosystem") == "PyPI" and name in pinned and _affects(affected, pinned[name]):
                text = str(advisory.get("summary") or advisory.get("details") or "").strip().partition("\n")[0][:120]
                found.add(Finding(name, pinned[name], str(advisory.get("id")), text))
    if not count:
        raise NoDatabase(f"{folder} holds no advisories in OSV's format (.json, .yaml)")
    return sorted(found), count


def _advisories(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".json", ".yaml", ".yml") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        try:
            content = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=_Loader)
        except (ValueError, yaml.YAMLError):
            continue
        if isinstance(content, dict) and "id" in content and "affected" in content:
            yield content


def _affects(affected: dict[str, Any], version: str) -> bool:
    """True if the version is listed or within a range, by OSV's rules (ossf.github.io/osv-schema, "Evaluation")."""
    if version in (affected.get("versions") or ()):
        return True
    ranges = (one for one in affected.get("ranges") or () if one.get("type") == "ECOSYSTEM")
    return any(_within(one.get("events") or (), Version(version)) for one in ranges)


def _within(events: Any, version: Version) -> bool:
    inside = False
    for event in sorted(events, key=lambda one: _version(next(iter(one.values())))):
        if "introduced" in event and version >= _version(event["introduced"]):
            inside = True
        if ("fixed" in event and version >= _version(event["fixed"])) or (
            "last_affected" in event and version > _version(event["last_affected"])
        ):
            inside = False
    return inside


def _version(text: object) -> Version:
    try:
        return Version(str(text))
    except InvalidVersion:
        return Version("0")


def from_pip_audit() -> list[Finding]:
    """The findings of pip-audit's service. Raises NoDatabase if it is not installed or cannot reach the service."""
    found = []
    for name in FILES:
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--format", "json"]
        done = subprocess.run([*command, "-r", str(ROOT / name)], capture_output=True, text=True, timeout=300)
        try:
            packages = json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError, TypeError):
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise NoDatabase(f"pip-audit found no database: {said[:300]}") from None
        for one in packages:
            for known in one.get("vulns", ()):
                text = str(known.get("description", "")).strip().partition("\n")[0][:120]
                found.append(Finding(one["name"], one["version"], known["id"], text))
    return sorted(set(found))


def main(arguments: list[str]) -> int:
    pinned = pins()
    try:
        if arguments:
            found, count = from_folder(Path(arguments[0]), pinned)
            asked = f"{count:,} advisories of {arguments[0]}"
        else:
            found, asked = from_pip_audit(), "pip-audit's service"
    except NoDatabase as error:
        print(f"audit: NOT DONE: {error}", file=sys.stderr)
        print("audit: clone PyPA's advisory-database and say make audit ADVISORIES=folder", file=sys.stderr)
        return NO_DATABASE
    for finding in found:
        print(finding)
    print(f"{len(pinned)} packages, {asked}: {len(found) or 'nothing'} known")
    return VULNERABLE if found else NOTHING_KNOWN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
