"""What is kept of Services and controllers that are watched: selectors, and only what is different."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kube.api.typed import Ref, Unreadable
from dovetail.kube.api.watch import Changed, Deleted, NotServed, Replaced
from dovetail.kube.live.selector_mirror import WATCHED, SelectorMirror
from dovetail.model.events import SelectorChanged
from dovetail.model.relations import Selector

WEB = Selector((("app", "web"),))
REPLICA_SET = {"matchLabels": {"app": "web"}}


def item(kind: str, name: str, **spec: Any) -> Any:
    meta = {"name": name, "namespace": "ml", "labels": {"x": "y"}}
    return msgspec.convert({"metadata": meta, "spec": {"template": {}, **spec}}, WATCHED[kind][1])


def changed(kind: str, name: str, selector: Selector | None) -> SelectorChanged:
    return SelectorChanged(5.0, kind, "ml", name, selector)


@pytest.mark.parametrize(
    ("kind", "selector"),
    [
        ("Service", {"app": "web"}),
        ("ReplicationController", {"app": "web"}),
        ("ReplicaSet", REPLICA_SET),
        ("StatefulSet", REPLICA_SET),
    ],
)
def test_each_kind_is_read_by_its_selector(kind: str, selector: Any) -> None:
    mirror = SelectorMirror(lambda: 5.0)
    there = Changed(item(kind, "a", selector=selector, replicas=1))
    assert mirror.hear(kind, [there, there]) == [changed(kind, "a", WEB)]
    gone: Any = Deleted(Ref("ml", "a", ""), None)
    assert mirror.hear(kind, [gone, gone]) == [changed(kind, "a", None)]


def test_a_replica_set_without_replicas_is_not_kept() -> None:
    """A Deployment leaves ten past revisions."""
    mirror = SelectorMirror(lambda: 5.0)
    kind = "ReplicaSet"
    assert mirror.hear(kind, [Changed(item(kind, "old", selector=REPLICA_SET, replicas=0))]) == []
    assert mirror.hear(kind, [Changed(item(kind, "old", selector=REPLICA_SET, replicas=2))]) == [
        changed(kind, "old", WEB)
    ]
    assert mirror.hear(kind, [Changed(item(kind, "old", selector=REPLICA_SET, replicas=0))]) == [
        changed(kind, "old", None)
    ]


def test_a_new_list_drops_what_is_not_in_it_but_not_what_could_not_be_read() -> None:
    mirror, kind = SelectorMirror(lambda: 5.0), "Service"
    names = ("a", "b", "c")
    mirror.hear(kind, [Changed(item(kind, name, selector={"app": "web"})) for name in names])
    unreadable = [Unreadable(Ref("ml", "c", ""), "no")]
    news = mirror.hear(kind, [Replaced([item(kind, "a", selector={"app": "web"})], unreadable)])
    assert news == [changed(kind, "b", None)]


def test_a_service_without_a_selector_selects_nothing() -> None:
    assert SelectorMirror(lambda: 5.0).hear("Service", [Changed(item("Service", "external"))]) == []


def test_a_kind_that_may_not_be_read_any_more_spreads_nothing() -> None:
    mirror, kind = SelectorMirror(lambda: 5.0), "Service"
    mirror.hear(kind, [Changed(item(kind, "a", selector={"app": "web"}))])
    assert mirror.hear("StatefulSet", [NotServed()]) == []
    assert mirror.hear(kind, [NotServed(), NotServed()]) == [changed(kind, "a", None)]
