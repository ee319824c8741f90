"""`make sbom` and `make audit`: what the image holds, and what is known to be wrong with it."""

from __future__ import annotations

import json
import re
import sys
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from dovetail import __version__
from tools import audit, sbom

PINNED = {"aiohttp": "3.14.5", "numpy": "2.4.6"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    assert sbom.main([str(folder)]) == 0
    return folder


def test_the_document_has_what_cyclonedx_requires(made: Path) -> None:
    """The required fields of bom-1.6.schema.json, and references that resolve."""
    document = json.loads((made / sbom.DOCUMENT).read_text(encoding="utf-8"))
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document["serialNumber"])
    own = document["metadata"]["component"]
    assert (own["type"], own["name"], own["version"]) == ("application", "dovetail", __version__)
    for part in document["components"]:
        assert part["type"] == "library"
        assert part["purl"] == part["bom-ref"] == f"pkg:pypi/{part['name']}@{part['version']}"
        [licence] = part["licenses"]
        assert set(licence) == {"expression"} or set(licence["license"]) == {"name"}
    refs = [own["bom-ref"], *(part["bom-ref"] for part in document["components"])]
    assert len(set(refs)) == len(refs)
    assert [each["ref"] for each in document["dependencies"]] == refs
    assert all(set(each["dependsOn"]) <= set(refs) for each in document["dependencies"])


def test_the_document_has_every_pinned_package_of_the_image(made: Path) -> None:
    document = json.loads((made / sbom.DOCUMENT).read_text(encoding="utf-8"))
    pins = re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", sbom.PINS.read_text(encoding="utf-8"))
    assert [(part["name"], part["version"]) for part in document["components"]] == sorted(pins)
    needs = {each["ref"].partition("@")[0].rpartition("/")[2]: each["dependsOn"] for each in document["dependencies"]}
    assert {ref.partition("@")[0].rpartition("/")[2] for ref in needs["dovetail"]} == sbom.declared()
    assert any(ref.startswith("pkg:pypi/llvmlite@") for ref in needs["numba"])


def test_every_package_states_a_licence(made: Path) -> None:
    lines = (made / sbom.LICENCES).read_text(encoding="utf-8").splitlines()
    assert lines[0].split() == ["dovetail", __version__, "Apache-2.0", "LICENSE"]
    assert len(lines) == 1 + len(sbom.components(sbom.PINS.read_text(encoding="utf-8")))
    for line in lines[1:]:
        assert "not stated" not in line
        assert ".dist-info/" in line  # where the text of the licence is


def test_the_same_pins_give_the_same_bytes(made: Path, tmp_path: Path) -> None:
    assert sbom.main([str(tmp_path)]) == 0
    for name in (sbom.DOCUMENT, sbom.LICENCES):
        assert (tmp_path / name).read_bytes() == (made / name).read_bytes()


@pytest.mark.parametrize(("pin", "says"), [("click==0.1", r"but \S+ is installed"), ("no-such==1", "not installed")])
def test_what_is_not_installed_as_pinned_is_not_listed(pin: str, says: str) -> None:
    with pytest.raises(sbom.CannotList, match=says):
        sbom.components(f"{pin} \\\n    --hash=sha256:0\n")


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        ([("License-Expression", "MIT OR Apache-2.0"), ("License", "x")], "MIT OR Apache-2.0"),
        ([("Classifier", "License :: OSI Approved :: MIT License"), ("License", "see file")], "MIT"),
        ([("Classifier", "License :: OSI Approved :: BSD License"), ("License", "BSD-3-Clause")], "BSD License"),
        ([("License", "BSD-3-Clause")], "BSD-3-Clause"),
        ([], ""),
    ],
)
def test_where_a_licence_is_stated(headers: list[tuple[str, str]], licence: str) -> None:
    metadata = Message()
    for name, value in headers:
        metadata[name] = value
    assert sbom.licence_of(metadata) == licence


def advisory(name: str, **affected: Any) -> dict[str, Any]:
    return {
        "id": f"PYSEC-{name}",
        "summary": "bad",
        "affected": [{"package": {"name": name, "ecosystem": "PyPI"}, **affected}],
    }


def within(*events: dict[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (advisory("aiohttp", versions=["3.14.4", "3.14.5"]), True),
        (advisory("aiohttp", versions=["3.14.4"]), False),
        (advisory("AioHTTP", **within({"introduced": "0"})), True),
        (advisory("aiohttp", **within({"introduced": "0"}, {"fixed": "3.14.5"})), False),
        (advisory("aiohttp", **within({"introduced": "3.14"}, {"fixed": "3.14.10"})), True),  # 10 is more than 5
        (advisory("aiohttp", **within({"introduced": "0"}, {"last_affected": "3.14.5"})), True),
        (advisory("aiohttp", **within({"fixed": "3.0"}, {"introduced": "0"}, {"introduced": "3.15"})), False),
        (advisory("other", **within({"introduced": "0"})), False),
        ({**advisory("aiohttp", versions=["3.14.5"]), "withdrawn": "2026-01-01T00:00:00Z"}, False),
    ],
)
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_advisories_of_a_folder(tmp_path: Path, given: dict[str, Any], found: bool, suffix: str) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / f"a.{suffix}").write_text(json.dumps(given))  # JSON is YAML
    (tmp_path / "broken.json").write_text("{")
    findings, count = audit.from_folder(tmp_path, PINNED)
    assert count == 1
    assert [str(finding) for finding in findings] == ["aiohttp 3.14.5: PYSEC-" + str(given["id"])[6:] + ": bad"] * found


def test_the_exit_code_says_whether_anybody_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit, "pins", lambda: PINNED)
    assert audit.main([str(tmp_path)]) == 3
    assert "audit: NOT DONE: " in capsys.readouterr().err
    (tmp_path / "a.json").write_text(json.dumps(advisory("aiohttp", versions=["1"])))
    assert audit.main([str(tmp_path)]) == 0
    assert "2 packages, 1 advisories" in capsys.readouterr().out
    (tmp_path / "a.json").write_text(json.dumps(advisory("aiohttp", versions=["3.14.5"])))
    assert audit.main([str(tmp_path)]) == 1
    monkeypatch.setattr(sys, "executable", "/bin/false")  # as where pip-audit is not installed
    assert audit.main([]) == 3
    assert "pip-audit found no database" in capsys.readouterr().err
