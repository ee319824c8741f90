"""The documentation is true: links resolve, tables are complete, examples run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dovetail.cli.main import cli
from dovetail.model.reason import REASON_WORDS
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, spaces to hyphens, most punctuation dropped."""
    titles = re.findall(r"(?m)^#+ (.+)$", prose(page))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}: no such heading"


def test_every_page_is_linked_from_somewhere() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve() for page in PAGES for link in LINK.findall(prose(page)) if link
    }
    for page in ROOT.glob("docs/**/*.md"):
        targets = {page, page.parent} if page.name == "README.md" else {page}
        assert targets & linked, f"nobody links to {page.relative_to(ROOT)}"


INDEX = ROOT / "docs" / "README.md"


def test_the_index_names_every_page_once_in_a_section_for_its_readers() -> None:
    sections_of_readers = ["Try it", "Run it", "Simulate", "Extend", "Understand"]
    assert re.findall(r"(?m)^## (.+)$", prose(INDEX)) == sections_of_readers
    rows = re.findall(r"(?m)^\| \[[^\]]+\]\(([^)\s]+)\) \| .+ \|$", prose(INDEX))
    assert len(rows) == len(set(rows))
    pages = {page.name for page in ROOT.glob("docs/*.md")} - {INDEX.name}
    assert pages == {row for row in rows if "/" not in row}


def sections(page: str) -> dict[str, str]:
    parts = re.split(r"(?m)^## (.+)$", read(page))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize(("title", "names"), [("Node policies", NODE_POLICIES), ("Device policies", DEVICE_POLICIES)])
def test_every_policy_has_a_row_and_a_paragraph(title: str, names: dict[str, Any]) -> None:
    text = sections("docs/policies.md")[title]
    assert re.findall(r"(?m)^\| `([a-z-]+)` \|", text) == list(names)
    assert re.findall(r"(?m)^\*\*([a-z-]+)\*\* ", text) == list(names)


def test_every_reason_has_its_row() -> None:
    rows = {}
    for line in read("docs/reasons.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            assert cells[3], f"{cells[0]}: what to do?"
            rows[cells[0].strip("`")] = (cells[1], cells[2].strip("`"))
    assert rows == {word.name: (word.sentence, word.hami or "–") for word in REASON_WORDS.values()}


Found = tuple[int, str]  # exit code, standard output


def run(arguments: str) -> Found:
    result = CliRunner().invoke(cli, shlex.split(arguments), prog_name="dovetail")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Every path in a document; maps whose keys are names of things count as one."""
    if isinstance(value, list):
        for item in value:
            yield from keys(item, f"{path}[]")
    elif isinstance(value, dict):
        for key, item in value.items():
            own = f"{path}.{'*' if path in NAMED else key}"
            yield own
            yield from keys(item, own)


NAMED = {".nodes[].resources", ".pending[].reasons", ".pending[].nodes", ".ignored"}


def test_the_json_example_has_the_keys_that_plan_prints() -> None:
    example = json.loads(next(body for kind, body in FENCE.findall(read("docs/plan-json.md")) if kind == "json"))
    _, placed = run("plan -f examples/demo/cluster.yaml -f examples/demo/demo-a.yaml -o json")
    _, pending = run("plan -f examples/what-if -o json")
    _, evicting = run("plan -f examples/preemption -o json")
    printed = {*(key for text in (placed, pending, evicting) for key in keys(json.loads(text))), ".ignored.*"}
    assert set(keys(example)) == printed
    assert list(example) == list(json.loads(placed))


def documented(title: str) -> set[str]:
    """First cells of the tables in a section, `a`, `.b` written out."""
    text = sections("docs/plan-json.md")[title]
    found: set[str] = set()
    for cell in re.findall(r"(?m)^\| (`.+?`) \|", text):
        names = re.findall(r"`([^`]+)`", cell)
        stem = names[0].rpartition(".")[0]
        found |= {f"{stem}{name}" if name.startswith(".") else name for name in names}
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        "summariser -n search -f examples/what-if",
        "demo-a-0 -f examples/demo/cluster.yaml -f examples/demo/demo-a.yaml",
        "finetune -n training -f examples/preemption --no-preemption",
    ],
)
def test_every_field_of_explain_is_documented(arguments: str) -> None:
    _, text = run(f"explain {arguments} -o json")
    printed = json.loads(text)
    names = documented("`explain -o json`")
    assert set(printed) == {name for name in names if "." not in name}
    for part in ("nodes", "ways"):
        for one in printed[part]:
            assert {f"{part}[].{key}" for key in one} == {name for name in names if name.startswith(f"{part}[].")}


def test_every_field_of_plan_is_documented() -> None:
    _, text = run("plan -f examples/what-if -o json")
    names = documented("The document")
    printed = json.loads(text)
    assert set(printed) <= names
    for part in (printed["summary"], printed["pending"][0], printed["nodes"][0]):
        assert set(part) <= names
    assert {f"devices[].{key}" for key in printed["nodes"][0]["devices"][0]} <= names


def commands() -> Iterator[tuple[str, str]]:
    """(command, what stands below it) for every command of the README that reads only examples."""
    for _, body in FENCE.findall(read("README.md")):
        for block in re.split(r"(?m)^\$ ", body)[1:]:
            command, _, shown = block.partition("\n")
            if re.match(r"(\.venv/bin/)?dovetail ", command):
                yield command, shown
    for line in re.findall(r"(?m)^ {4}((?:\.venv/bin/)?dovetail .+)$", prose(ROOT / "README.md")):
        yield line.partition(" #")[0], ""


def reads_only_examples(command: str) -> bool:
    files = re.findall(r"-f (\S+)", command)
    return all(name.startswith("examples/") for name in files)


COMMANDS = [(command, shown) for command, shown in commands() if reads_only_examples(command)]


def test_the_readme_shows_commands() -> None:
    assert len(COMMANDS) >= 2


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_commands_of_the_readme_print_what_it_shows(command: str, shown: str) -> None:
    code, output = run(command.partition("dovetail ")[2])
    stated = re.search(rf"(?m)^\$ {re.escape(command)}\n(?:(?!\$ ).*\n)*\$ echo \$\?\n(\d+)$", read("README.md"))
    assert code == int(stated[1]) if stated else code in (0, 3)
    assert shown.strip() in ("", output.strip())


def test_the_demo_in_the_readme_is_what_demo_prints() -> None:
    shown = next(body for kind, body in FENCE.findall(read("README.md")) if body.startswith("A  node"))
    _, output = run("demo A")
    lines = iter(output.splitlines())
    for line in shown.splitlines():  # in order; what is left out stands where the dots are
        assert line.strip() == "…" or line in lines, line


def test_the_readme_is_short() -> None:
    assert len(read("README.md").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_prose_are_not_endless(page: Path) -> None:
    for number, line in enumerate(prose(page).splitlines(), 1):
        assert line.startswith("|") or len(line) <= 150, f"{page.name}: line {number} of the prose"


UNNAMED = re.compile(
    r"\b(whoever|whomever|somebody|someone|anybody|anyone|nobody|everybody|everyone|those who|of ours|dearer)\b",
    re.IGNORECASE,
)
PLAIN = [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "adr"]


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_name_the_pod_the_node_or_the_user(page: Path) -> None:
    """Plain English: "a pod that waits", not "somebody who waits"."""
    found = [
        (number, word) for number, line in enumerate(prose(page).splitlines(), 1) for word in UNNAMED.findall(line)
    ]
    assert found == []


def test_the_threat_model_names_modules_and_tests_that_exist() -> None:
    page = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tests|deploy|docs|kube|engine|model|sim|cli)/[\w./*-]+)`", page))
    assert len(named) > 30
    missing = [
        name
        for name in sorted(named)
        if not any(next(base.glob(name), None) for base in (ROOT, ROOT / "src" / "dovetail"))
    ]
    assert missing == []
