"""Any set of objects gives the same ledger, decisions and reasons through files as through watches.

What only the API server would change is filled in for files by conversion/admission.py; watches are given what it made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.conversion import cluster, file_pods, reading
from dovetail.kube.conversion.admission import Admission, admission
from dovetail.kube.conversion.reading import Held
from dovetail.kube.files.decode import decode
from dovetail.kube.files.documents import parse
from dovetail.kube.live import sources
from dovetail.kube.live.namespaces import Namespaces
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problems
from dovetail.model.pod import Quota
from tests.kube.manifests import Object
from tests.kube.one_reading.readers import SETTINGS, Picture, by_files, by_watches, text_of
from tests.kube.one_reading.sets import admission_rules, object_set
from tests.properties import TIMES, with_examples

SETS, PARTS = 2_000, 8  # in parts, which run side by side


def differences(one: Picture, other: Picture) -> dict[str, Any]:
    """By part of the picture and object, what each of them says."""
    found: dict[str, Any] = {}
    for each in fields(Picture):
        left, right = getattr(one, each.name), getattr(other, each.name)
        for key in sorted({*left, *right}):
            if left.get(key) != right.get(key):
                found[f"{each.name} {key}"] = (left.get(key), right.get(key))
    return found


def compared(dice: Random) -> dict[str, Any]:
    items = object_set(dice)
    return differences(by_files(items), by_watches(items, dice))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_files_and_watches_give_the_same(part: int) -> None:
    for seed in range(part, SETS * TIMES, PARTS):
        assert not (found := compared(Random(seed))), f"seed {seed}: {found}"


@pytest.mark.slow
@with_examples(40)
@given(st.randoms(use_true_random=False))
def test_files_and_watches_give_the_same_with_sets_that_shrink(dice: Random) -> None:
    assert not compared(dice)


@pytest.mark.slow
def test_pods_to_be_made_are_read_as_the_api_server_would_have_stored_them() -> None:
    """Priority from its class, defaults of LimitRanges, overhead and selector of the RuntimeClass, tolerations."""
    for seed in range(150 * TIMES):
        dice = Random(seed)
        items = [item for item in object_set(dice) if item["kind"] != "ResourceQuota"]  # pods beyond one are not made
        new = [_not_made_yet(item, dice) for item in items + admission_rules(dice)]
        labels = {item["metadata"]["name"]: item["metadata"].get("labels", {}) for item in new if _is_namespace(item)}
        served = [_admitted(item, _rules(new), labels) for item in new if _is_watched(item)]
        found = differences(by_files(new), by_watches(served, dice))
        assert not found, f"seed {seed}: {found}"


def _not_made_yet(item: Object, dice: Random) -> Object:
    """A pod of a manifest: without what the API server, other schedulers and kubelet write."""
    if item["kind"] != "Pod" or item["spec"].get("nodeName"):
        return item
    gone = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
    meta = {key: value for key, value in item["metadata"].items() if key not in gone}
    spec = {key: value for key, value in item["spec"].items() if key not in ("priority", "overhead")}
    spec |= {"priorityClassName": dice.choice(("", "high", "system-node-critical", "no-such-class"))}
    spec |= {"runtimeClassName": dice.choice(("", "", "kata", "no-such-runtime"))}
    return {**item, "metadata": meta, "spec": spec, "status": {}}


def _rules(items: list[Object]) -> Admission:
    problems = Problems()
    return admission(decode(parse("rules.json", text_of(items), problems), problems), (), problems)


def _is_watched(item: Object) -> bool:
    return item["kind"] not in ("PriorityClass", "LimitRange", "RuntimeClass")


def _is_namespace(item: Object) -> bool:
    return bool(item["kind"] == "Namespace")


def _admitted(item: Object, rules: Admission, namespaces: dict[str, dict[str, str]]) -> Object:
    if item["kind"] != "Pod" or "uid" in item["metadata"]:
        return item
    spec, meta = msgspec.convert(item["spec"], objects.PodSpec), item["metadata"]
    vendors = SETTINGS.before_admission(spec, meta["labels"], namespaces[meta["namespace"]]).vendors
    admitted = rules.admit(spec, meta["namespace"], vendors, "", Problems())
    meta = {**meta, "uid": f"{meta['namespace']}/{meta['name']}", "resourceVersion": "1"}
    return {**item, "metadata": meta, "spec": msgspec.to_builtins(admitted)}


# ---- a reader that is broken is found ---------------------------------------------------------------------------


def _files_believe_no_record(broken: pytest.MonkeyPatch) -> None:
    read = reading.first_held

    def unread(*words: Any) -> Held:
        held = read(*words)
        return held._replace(running=replace(held.running, shares=None))

    broken.setattr(file_pods, "first_held", unread)


def _files_take_each_node_by_itself(broken: pytest.MonkeyPatch) -> None:
    broken.setattr(cluster, "settled_nodes", lambda readings, held: {one.node.name: one.node for one in readings})


def _watches_do_not_look_at_namespaces(broken: pytest.MonkeyPatch) -> None:
    broken.setattr(Namespaces, "labels_of", lambda self, name: {})


def _watches_forget_quotas(broken: pytest.MonkeyPatch) -> None:
    broken.setattr(sources, "quota_from", lambda found, vendors, problems: Quota(found.namespace, found.name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "breaks",
    [
        _files_believe_no_record,
        _files_take_each_node_by_itself,
        _watches_do_not_look_at_namespaces,
        _watches_forget_quotas,
    ],
)
def test_a_reader_that_is_broken_is_found(
    breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    assert any(compared(Random(seed)) for seed in range(SETS // 4))
