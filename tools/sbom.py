"""`python -m tools.sbom [FOLDER]`: lists the image's packages: a CycloneDX 1.6 document and a list of licences.

Components are the pins of deploy/requirements-live.txt. Licences and dependencies come from the metadata of the
installed packages of these versions. The same pins give the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from dovetail import __version__

ROOT = Path(__file__).parent.parent
PINS = ROOT / "deploy" / "requirements-live.txt"
DOCUMENT, LICENCES = "dovetail.cdx.json", "licences.txt"
_PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXPRESSION = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) \(?[A-Za-z0-9.+-]+\)?)*")
_CLASSIFIERS = {  # of trove; only those that name exactly one SPDX licence
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}


class CannotList(Exception):
    """The installed packages are not the pinned ones."""


@dataclass(frozen=True, slots=True)
class Component:
    """A package of the image."""

    name: str
    version: str
    licence: str  # an SPDX expression or the package's own text; "" = not stated
    needs: tuple[str, ...]  # names of pinned packages
    licence_files: tuple[str, ...]

    @property
    def ref(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def components(pins: str) -> list[Component]:
    """The pinned packages, by name. Raises CannotList if another version, or none, is installed here."""
    pinned = dict(_PIN.findall(pins))
    found = []
    for name, version in sorted(pinned.items()):
        try:
            package = distribution(name)
        except PackageNotFoundError:
            raise CannotList(f"{name}=={version} is pinned, but not installed: run `make venv`") from None
        if package.version != version:
            raise CannotList(f"{name}=={version} is pinned, but {package.version} is installed: run `make venv`")
        found.append(Component(name, version, licence_of(package.metadata), _needs(package, pinned), _files(package)))
    return found


def licence_of(metadata: Any) -> str:
    """The licence: PEP 639's expression, else the classifiers, else the first line of the free text."""
    said: Message = metadata
    if expression := said.get("License-Expression"):
        return str(expression)
    trove = [value.rpartition(" :: ")[2] for value in said.get_all("Classifier", []) if value.startswith("License ::")]
    named = [_CLASSIFIERS.get(value, value) for value in trove if value != "OSI Approved"]
    free = (said.get("License") or "").strip().partition("\n")[0]
    if _EXPRESSION.fullmatch(free) and len(named) != 1:
        return free
    return " AND ".join(named) if named else free[:100]


def _needs(package: Distribution, pinned: dict[str, str]) -> tuple[str, ...]:
    names = {
        match[0].lower().replace("_", "-").replace(".", "-")
        for requirement in package.requires or ()
        if "extra ==" not in requirement and (match := _NAME.match(requirement))
    }
    return tuple(sorted(names & set(pinned)))


def _files(package: Distribution) -> tuple[str, ...]:
    words = ("licen", "copying", "notice", "authors")
    files = (file for file in package.files or () if ".dist-info" in file.parts[0])
    return tuple(sorted(str(file) for file in files if file.name.lower().startswith(words)))


def document(found: list[Component]) -> dict[str, Any]:
    """The CycloneDX 1.6 document. The serial number is a hash of the content, and there is no timestamp."""
    own = f"pkg:pypi/dovetail@{__version__}"
    direct = [part.ref for part in found if part.name in declared()]
    body: dict[str, Any] = {
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "dovetail",
                "version": __version__,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "tools": {"components": [{"type": "application", "name": "tools/sbom.py", "version": __version__}]},
        },
        "components": [_component(part) for part in found],
        "dependencies": [
            {"ref": own, "dependsOn": sorted(direct)},
            *({"ref": part.ref, "dependsOn": [_ref(found, name) for name in part.needs]} for part in found),
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return {**head, **body}


def declared() -> set[str]:
    """Names of the packages that pyproject.toml itself requires for the live scheduler."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["live"]]
    return {match[0].lower() for requirement in wanted if (match := _NAME.match(requirement))}


def _ref(found: list[Component], name: str) -> str:
    return next(part.ref for part in found if part.name == name)


def _component(part: Component) -> dict[str, Any]:
    licences: list[dict[str, Any]] = []
    if part.licence and _EXPRESSION.fullmatch(part.licence):
        licences = [{"expression": part.licence}]
    elif part.licence:
        licences = [{"license": {"name": part.licence}}]
    found = {"type": "library", "bom-ref": part.ref, "name": part.name, "version": part.version, "purl": part.ref}
    return {**found, "licenses": licences} if licences else found


def licences(found: list[Component]) -> str:
    """A line per package: name, version, licence, and the files in the image with its text."""
    own = (f"dovetail {__version__}", "Apache-2.0", "LICENSE")
    rows = [own, *((f"{p.name} {p.version}", p.licence or "not stated", ", ".join(p.licence_files)) for p in found)]
    widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
    return "".join(f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}".rstrip() + "\n" for row in rows)


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else ROOT / "dist"
    try:
        found = components(PINS.read_text(encoding="utf-8"))
    except CannotList as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DOCUMENT).write_text(json.dumps(document(found), indent=2) + "\n", encoding="utf-8")
    (folder / LICENCES).write_text(licences(found), encoding="utf-8")
    print(f"{len(found)} packages: {folder / DOCUMENT}, {folder / LICENCES}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
