"""Our YAML reader says what PyYAML's says, except where kubectl's differs; and it cannot be made to recurse."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.files.yaml_text import TextError, documents
from tests.properties import with_examples

TEXTS = st.text(max_size=12).filter(lambda text: "e" not in text.lower())  # PyYAML writes the text 1e3 without quotes
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def read(text: str) -> list[Any]:
    return list(documents(text, lambda message: pytest.fail(message)))


@given(TREES)
@with_examples(200)
def test_what_pyyaml_writes_is_read_back(tree: Any) -> None:
    shared = {"first": tree, "again": tree}  # the dumper writes collections that occur twice as an anchor and an alias
    text = yaml.dump(shared, Dumper=yaml.CSafeDumper, allow_unicode=True)
    assert read(text) == [shared]


@pytest.mark.parametrize(
    "text",
    [
        "on",
        "Off",
        "YES",
        "~",
        "",
        "null",
        "010",
        "0x1F",
        "0b11",
        "-1_000",
        "+7",
        "1.5",
        ".5",
        "1.",
        "-.inf",
        "1e3",
        "1.5e+3",
    ],
)
def test_scalars_are_yaml_1_1(text: str) -> None:
    expected = yaml.safe_load(text)
    if text == "1e3":  # PyYAML wants a dot in floats; YAML and kubectl do not
        expected = 1000.0
    assert read(f"- {text}") == [[expected]]


@pytest.mark.parametrize("text", ["2026-01-31", "12:30:00", "1:30", "0o7", "09", "1.2.3", "+", "._", "<<", "y"])
def test_and_some_that_look_like_more_are_text(text: str) -> None:
    assert read(f"a: {text}")[0] == {"a": text}


def test_quotes_and_tags_decide() -> None:
    assert read('["1", \'on\', !!str 3, !!int "4", !!float 5]') == [["1", "on", "3", 4, 5.0]]


def test_merges_as_pyyaml_does_them() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], z: 3}\nd: {y: 0, <<: *a}\n"
    assert read(text) == [yaml.safe_load(text)]


def test_a_key_that_stands_twice_is_told_and_the_last_one_counts() -> None:
    told: list[str] = []
    assert list(documents("a: 1\nb: 2\na: 3\n", told.append)) == [{"a": 3, "b": 2}]
    assert told == ["the key 'a' stands twice in one mapping (line 3); the last one counts"]


@pytest.mark.parametrize("text", ["? [a]\n: b", "{a: b}: c", "*nobody", "!!set {a}", "!!binary aGk=", "<<: 3", "!x y"])
def test_what_has_no_place_in_a_manifest_is_refused(text: str) -> None:
    with pytest.raises(TextError):
        read(text)
