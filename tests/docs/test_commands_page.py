"""docs/commands.md: its outputs are real, and its tables of JSON fields are complete."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail.cli.main import cli

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "commands.md"
SHOWN = re.compile(r"^```console\n\$ dovetail (?P<words>.*)\n(?P<output>(?:.*\n)*?)```$", re.MULTILINE)
GANG = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "m", "annotations": {"dovetail.dev/gang": "g", "dovetail.dev/gang-size": "2"}},
    "spec": {"containers": [{"name": "c"}]},
}
QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "9"}}}


@pytest.mark.parametrize(
    "shown", list(SHOWN.finditer(PAGE.read_text(encoding="utf-8"))), ids=lambda found: found["words"]
)
def test_the_output_on_the_page_is_real(shown: re.Match[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(cli, shlex.split(shown["words"]))
    assert done.exit_code == 0
    assert done.stdout == shown["output"]


def test_the_page_shows_outputs() -> None:
    assert len(SHOWN.findall(PAGE.read_text(encoding="utf-8"))) >= 3


@pytest.mark.parametrize("kind", ["gpus", "nodes", "pods", "queue", "gangs", "quotas"])
def test_every_field_of_the_json_is_in_its_table(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    extra = json.dumps({"apiVersion": "v1", "kind": "List", "items": [GANG, QUOTA]})
    done = CliRunner().invoke(cli, ["get", kind, "-A", "-f", "examples/what-if", "-f", "-", "-o", "json"], input=extra)
    document = json.loads(done.stdout)
    row = re.search(rf"^\| `{document['kind']}` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None
    assert document["items"]
    for item in document["items"]:
        assert list(item) == re.findall(r"`(\w+)`", row[1])
