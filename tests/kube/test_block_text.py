"""The reader for kubectl's style says what the reader of libyaml's events says, or leaves the text to it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.files import block_text, yaml_text
from dovetail.kube.files.documents import read_yaml
from dovetail.kube.objects.problems import Problems
from tests.properties import with_examples

# As `kubectl get nodes -o yaml` prints it: long texts are folded at column 80, a text of several lines is a literal.
DUMP = """\
apiVersion: v1
items:
- apiVersion: v1
  kind: Node
  metadata:
    annotations:
      hami.io/node-nvidia-register: '[{"id":"GPU-1","devmem":81559,"type":"NVIDIA
        H100 80GB HBM3","numa":0,"health":true}]'
      it: it''s
      kubectl.kubernetes.io/last-applied-configuration: |
        {"apiVersion":"v1",
         "kind":"Node"}
      node.alpha.kubernetes.io/ttl: "0"
      umlaut: ä
    creationTimestamp: null
    labels: {}
    name: a
  spec:
    taints:
    - effect: NoSchedule
      key: gpu
  status:
    allocatable:
      cpu: "127"
      memory: 1045910476Ki
    conditions:
    - lastHeartbeatTime: "2026-01-20T10:11:12Z"
      message: kubelet has sufficient memory available, and so much of it that the
        text is folded
      status: "False"
    daemonEndpoints:
      kubeletEndpoint:
        Port: 10250
    images:
    - names:
      - registry.example.com/a@sha256:0123
      - registry.example.com/a:v1
      sizeBytes: 20000000
kind: List
metadata:
  resourceVersion: ""
"""
ODD = "a on null 1 1.5 -1 0x1f #c << *e &f !g ' \" a: {} [] | > ? --- ... % @ \\n"
WORDS = st.sampled_from((*ODD.split(), "", " ", "k: v", "a #b", "- d", "a: [b]", "two\nlines", "x" * 90, "word " * 30))
TEXTS = WORDS | st.text(st.characters(min_codepoint=9, max_codepoint=300), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | TEXTS
TREES = st.dictionaries(
    WORDS | st.text("abc", max_size=3),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS | st.text("abc"), inner, max_size=4),
        max_leaves=20,
    ),
    max_size=5,
)
MARKS = "# ' \" '' *a ? [ ] { } , : \\ % ~ - x"
SPACES = (" ", "  ", "\n", "\n  ", "\n- ", "- ", ": ", " #", "\t", "\r", "\x85", "\u2028", "\ufeff")
LINES = ("a: 1\n", "b:\n", "  b:\n", "- c\n", "---\n", "...\n", "|\n", ">-\n", "|+\n\n", "&a ", "<<: ", "!!str ")
PIECES = st.sampled_from((*MARKS.split(), *SPACES, *LINES))


class Edit:
    """Some characters of a text replaced by others."""

    def __init__(self, at: float, length: int, piece: str) -> None:
        self.at, self.length, self.piece = at, length, piece

    def __repr__(self) -> str:
        return f"Edit({self.at}, {self.length}, {self.piece!r})"

    def of(self, text: str) -> str:
        start = int(self.at * len(text))
        return text[:start] + self.piece + text[start + self.length :]


EDITS = st.lists(st.builds(Edit, st.floats(0, 1), st.sampled_from((0, 0, 1, 2, 5)), PIECES | st.just("")), max_size=4)


def by_events(text: str) -> Any:
    """The only document of the text, where nothing is odd about it; else an exception."""
    told: list[str] = []
    (only,) = yaml_text.documents(text, told.append)
    assert not told
    return only


def read_alike(text: str) -> None:
    try:
        found = block_text.document(text)
    except block_text.NotBlockStyle:
        return
    expected = by_events(text)
    assert repr(found.value) == repr(expected)  # 1, 1.0 and true are equal in Python
    if found.is_printable:
        assert all(part.isprintable() for part in _texts(expected))


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []


@given(TREES, st.sampled_from((40, 80, 1_000)), EDITS)
@with_examples(600)
def test_any_text_is_read_alike_or_left_to_the_other_reader(tree: Any, width: int, edits: list[Edit]) -> None:
    text = yaml.dump(tree, Dumper=yaml.CSafeDumper, default_flow_style=False, width=width, allow_unicode=True)
    for edit in edits:
        text = edit.of(text)
    read_alike(text)


@given(EDITS)
@with_examples(600)
def test_and_so_is_a_dump_with_a_few_mistakes(edits: list[Edit]) -> None:
    text = DUMP
    for edit in edits:
        text = edit.of(text)
    read_alike(text)


def test_what_kubectl_prints_is_read_in_its_style() -> None:
    assert block_text.document(DUMP).value == by_events(DUMP)
    assert not block_text.document(DUMP).is_printable  # of the literal and the umlaut this is not known
    literal = DUMP[DUMP.index("      kubectl.") : DUMP.index("      node.alpha")]
    plain = DUMP.replace(literal, "").replace("      umlaut: ä\n", "")
    assert block_text.document(plain).is_printable


def test_an_entry_that_stands_twice_is_read_once() -> None:
    first, second = block_text.document("items:\n- a: {}\n  b: c\n- a: {}\n  b: c\n").value["items"]
    assert first is second


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2\n",  # a warning names the line
        "a: &x 1\nb: *x\n",
        "a:\n  <<: {b: 1}\n",
        "a: 1\n---\nb: 2\n",
        "# comment\na: 1\n",
        "a: 'b\n",
        "a: 1\n b: 2\n",
        "a: b: c\n",
        "a: 1",  # whether the file ends with a line break decides what `|` means
        "- a\n",
        "? a\n: b\n",
        "a: 1\n{b: 2}\n",
        " a: 1\nb: 2\n",
        "",
        "a: " + "9" * 5_000 + "\n",
        "a:\n" + "".join(" " * depth + "a:\n" for depth in range(1, 250)),
    ],
)
def test_what_needs_the_whole_text_is_left_to_the_other_reader(text: str) -> None:
    with pytest.raises(block_text.NotBlockStyle):
        block_text.document(text)


def test_a_mistake_deep_in_a_dump_is_told_with_its_line() -> None:
    problems = Problems()
    broken = DUMP.replace("kubeletEndpoint:", "kubeletEndpoint: 'x")
    assert read_yaml("nodes.yaml", broken, problems) is None
    line = broken[: broken.index("x\n        Port")].count("\n") + 1
    (problem,) = problems.found()
    assert f"line {line}" in str(problem) or "found unexpected end of stream" in str(problem)


def test_levels_of_odd_entries_count_from_the_top() -> None:
    """200 levels are allowed: one here for the entry `a`, and those of the flow lists."""
    deep = "a: " + "[" * 199 + "]" * 199 + "\n"
    assert block_text.document(deep).value == by_events(deep)
    for too_deep in ("a: " + "[" * 200 + "]" * 200 + "\n", "a:\n  b: " + "[" * 199 + "]" * 199 + "\n"):
        with pytest.raises(block_text.NotBlockStyle):
            block_text.document(too_deep)


def test_text_with_many_odd_entries_is_left_to_the_other_reader_early() -> None:
    text = "items:\n" + "- [1]\n" * 50_000
    with pytest.raises(block_text.NotBlockStyle):
        block_text.document(text)
