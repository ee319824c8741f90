"""Files, folders, stdin, Lists; and hostile texts, each of which ends in a problem that names its place."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from dovetail.kube.conversion.cluster import load
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files.documents import Document, parse, read
from dovetail.kube.objects.problems import InputError, Problem, Problems
from tests.kube import manifests

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c}]}\n"


def complaint(text: str, source: str = "a.yaml") -> Problem:
    """The first error the text gives, whoever finds it."""
    problems = Problems()
    documents = parse(source, text, problems)
    with pytest.raises(InputError) as caught:  # what `parse` found stops `load`, too
        load(documents, Settings(), problems)
    return next(problem for problem in caught.value.problems if problem.severity == "error")


def texts(text: str, source: str = "a.yaml") -> list[Document]:
    problems = Problems()
    documents = parse(source, text, problems)
    assert problems.found() == ()
    return documents


def test_files_folders_and_stdin_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.yml").write_text(POD % "b")
    (tmp_path / "a.json").write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}))
    (tmp_path / "notes.txt").write_text("not for us")
    documents = read(["-", str(tmp_path)], Problems(), io.BytesIO(b"\xef\xbb\xbf" + (POD % "s").encode()))
    names = [document.where.rpartition("/")[2] for document in documents]
    assert names == ["stdin#1 Pod s", "a.json#1 Pod a", "b.yml#1 Pod b"]


def test_many_documents_and_lists_are_numbered_through() -> None:
    items = "items:\n- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n"
    listed = f"---\n{POD % 'a'}---\n# nothing\n---\nkind: List\napiVersion: v1\n{items}"
    assert [document.where for document in texts(listed)] == ["a.yaml#1 Pod a", "a.yaml#2 Pod b"]
    typed = {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a", "namespace": "x"}}]}
    assert [document.where for document in texts(json.dumps(typed))] == ["a.yaml#1 Pod x/a"]
    two = '{"apiVersion":"v1","kind":"Pod"}\n{"apiVersion":"v1","kind":"Node"}'
    assert [document.kind for document in texts(two)] == ["Pod", "Node"]


def test_a_yaml_flow_mapping_is_not_json() -> None:
    assert [document.kind for document in texts("{apiVersion: v1, kind: Pod}")] == ["Pod"]


def test_an_empty_file_and_an_empty_folder_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    (tmp_path / "folder").mkdir()
    problems = Problems()
    assert read([str(tmp_path / "empty.yaml"), str(tmp_path / "folder")], problems) == ()
    assert [problem.severity for problem in problems.found()] == ["warning", "warning"]


def test_a_file_that_is_not_there_does_not_hide_the_other_complaints(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError) as caught:
        read([str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"), "no\0name"], Problems())
    messages = [problem.message for problem in caught.value.problems]
    assert "cannot be read: No such file" in messages[0]
    assert "not UTF-8" in messages[1]
    assert len(messages) == 3


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
)
MERGES = "\n".join(
    ["a0: &a0 {x: 1}"] + [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 12)]
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("apiVersion: v1\nkind: [Pod", "not valid YAML"),
        ("apiVersion: v1\n\tkind: Pod", "line 2"),
        (BOMB, "aliases"),
        (MERGES, "aliases"),
        ("a: &a [*a]", "contains itself"),
        ("{a: " * 300 + "1" + "}" * 300, "nested"),
        ("[" * 100_000, "nested"),
        ("- " * 100_000, "nested"),
        ("just text", "is a text"),
        ("[1, 2]", "is a list"),
        ("kind: Pod", "every Kubernetes object has one"),
        ("apiVersion: v1\nkind: 3", "not a short text"),
        ("apiVersion: v1\nkind: List\nitems: 3", "not a list"),
        ("apiVersion: v1\nkind: Pod\nmetadata: !!python/object:os.system {}", "uses the tag"),
        ("a: \0", "not valid YAML"),
        ("a: " + "9" * 100_000, "cannot be read"),
    ],
)
def test_hostile_yaml_is_a_complaint(text: str, says: str) -> None:
    problem = complaint(text)
    assert says in problem.message
    assert problem.where.startswith("a.yaml")


@pytest.mark.parametrize(
    "text", ["{", '{"a": NaN}', "[" * 100_000, '{"a": ' * 100_000, '{"a": ' + "9" * 100_000 + "}", '{"a": "\x00"}']
)
def test_hostile_json_is_a_complaint(text: str) -> None:
    assert complaint(text, "a.json").where.startswith("a.json")


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("metadata: {name: p, labels: {a: on}}", "metadata.labels.a", "text (put it in quotes)"),
        ("metadata: {name: p, labels: {ok: x, b: 1}}", "metadata.labels.b", "text (put it in quotes)"),
        ("metadata: {name: p, labels: {1: a}}", "metadata.labels", "a key must be text"),
        ("metadata: {name: p, labels: on_its_own}", "metadata.labels", "must be a mapping, not text"),
        ("metadata: {name: 010}", "metadata.name", "text (put it in quotes), not a whole number"),
        ("metadata: {name: p, annotations: []}", "metadata.annotations", "a mapping, not a list"),
        ("metadata: {}", "metadata.name", "is missing"),
        ("spec: {containers: []}", "metadata", "is missing"),
        ("metadata: {name: a/b}", "metadata.name", "not a name"),
        ("metadata: {name: p, namespace: a b}", "metadata.namespace", "not a name"),
        ("metadata: {name: p}\nspec: {containers: {}}", "spec.containers", "a list, not a mapping"),
        (
            "metadata: {name: p}\nspec: {containers: [{resources: {limits: {cpu: true}}}]}",
            "spec.containers[0].resources.limits.cpu",
            "not true or false",
        ),
        ("metadata: {name: p}\nspec: {priority: high}", "spec.priority", "a whole number"),
        ("metadata: {name: p}\nspec: {containers: [null]}", "spec.containers[0]", "a mapping, not nothing"),
    ],
)
def test_a_wrong_type_names_file_object_and_field(text: str, field: str, says: str) -> None:
    tail = "" if "spec:" in text else "\nspec: {containers: []}"
    problem = complaint(f"apiVersion: v1\nkind: Pod\n{text}{tail}")
    assert problem.field == field
    assert says in problem.message
    assert problem.where.startswith("a.yaml#1 Pod")


def test_dates_are_text_and_null_is_absent() -> None:
    text = POD % "p" + "status: null\n"
    text = text.replace(
        "{name: p}", "{name: p, labels: null, annotations: {day: 2026-01-31, time: 12:30:00}, creationTimestamp: null}"
    )
    given = load(texts(text), Settings())
    assert [group.name for group in given.groups] == ["default/p"]


def test_the_same_object_twice_is_noted_and_a_different_one_is_an_error() -> None:
    problems = Problems()
    documents = parse("a.yaml", f"{POD % 'p'}---\n{POD % 'p'}", problems)
    given = load(documents, Settings(), problems)
    assert len(given.groups) == 1
    assert "same object as a.yaml#1 Pod default/p" in given.problems[0].message
    other = POD.replace("containers: [{name: c}]", "containers: [{name: d}]") % "p"
    assert "also defined, differently, by a.yaml#1" in complaint(f"{POD % 'p'}---\n{other}").message


def test_ten_megabytes_in_one_value_are_no_trouble() -> None:
    huge = "x" * 10_000_000
    quiet = parse("a.yaml", (POD % "p").replace("{name: p}", f"{{name: p, annotations: {{a: {huge}}}}}"), Problems())
    assert len(load(quiet, Settings()).groups) == 1
    assert len(complaint(POD % huge).message) < 1000


def test_problems_are_bounded_and_printable() -> None:
    problems = Problems()
    for number in range(5000):
        problems.warning("w", f"f{number}", "a\x1b[31m\ud800" + "b" * 10_000)
    found = problems.found()
    assert len(found) == 2001
    assert all(len(problem.message) < 1000 and "\x1b" not in problem.message for problem in found)
    str(found[0]).encode()


@pytest.mark.parametrize(
    ("api_version", "kind", "says"),
    [
        ("apps/v1", "Deploymnt", "did you mean Deployment?"),
        ("v1", "pod", "did you mean Pod?"),
        ("v1", "Deployment", "is not that of a Deployment, which is apps/v1"),
        ("apps/v1", "Pod", "is not that of a Pod, which is v1"),
        ("v1", "ConfigMap", ""),
        ("autoscaling/v2", "HorizontalPodAutoscaler", ""),
        ("karpenter.sh/v1", "NodePool", ""),
        ("networking.k8s.io/v1", "NetworkPolicy", ""),
        ("resource.k8s.io/v1", "ResourceClaim", ""),
    ],
)
def test_a_slip_in_the_kind_is_warned_of(api_version: str, kind: str, says: str) -> None:
    given = manifests.read({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": {}})
    assert given.ignored == {kind: 1}
    warnings = [problem.message for problem in given.problems if problem.severity == "warning"]
    assert (says in warnings[0]) if says else not warnings
