"""ElasticQuotas and Queues of a live cluster: which changes the engine is told, and what the log says."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.api.typed import Ref
from dovetail.kube.api.watch import Changed, Deleted, NotServed, Replaced
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.kube.live.queue_mirror import QueueMirror, QueueRef
from dovetail.kube.live.queue_watches import WATCHED_QUEUES, QueueWatches
from dovetail.kube.objects.queues import KAI_GROUP, SCHEDULER_PLUGINS, VOLCANO_GROUP, ElasticQuota, KaiQueue
from dovetail.model.events import QueueChanged
from tests.kube.live.stage import Stage


def quota(name: str, namespace: str = "ml", used: int = 0, **spec: Any) -> ElasticQuota:
    meta = {"name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"used": {"cpu": used}}}, ElasticQuota)


def queue(name: str, parent: str = "") -> KaiQueue:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"parentQueue": parent}}, KaiQueue)


def mirror() -> QueueMirror:
    return QueueMirror(lambda: 7.0, DEFAULT_VENDORS)


def told(changes: list[QueueChanged]) -> dict[str, str | None]:
    """Name -> parent; None = it is gone."""
    return {change.name: None if change.queue is None else change.queue.parent for change in changes}


def test_only_what_is_different_is_told() -> None:
    queues = mirror()
    (change,) = queues.hear(SCHEDULER_PLUGINS, [Replaced([quota("q", min={"cpu": 4})], [])])
    assert (change.at, change.name) == (7.0, "ElasticQuota/ml/q")
    assert change.queue is not None
    assert change.queue.guarantee == {"cpu": 4_000}
    assert queues.hear(SCHEDULER_PLUGINS, [Changed(quota("q", min={"cpu": 4}, used=2))]) == []
    source = queues.source_of("ElasticQuota/ml/q")
    assert source is not None
    assert source[0] == QueueRef(SCHEDULER_PLUGINS, "ml", "q")
    assert (source[1].status, source[1].names) == ({"used": {"cpu": 2}}, {"cpu": "cpu"})
    assert told(queues.hear(SCHEDULER_PLUGINS, [Deleted(Ref("ml", "q", "u"), None)])) == {"ElasticQuota/ml/q": None}
    assert queues.source_of("ElasticQuota/ml/q") is None


def test_a_parent_that_comes_later_gets_its_children() -> None:
    queues = mirror()
    assert told(queues.hear(KAI_GROUP, [Changed(queue("team", "org"))])) == {"kai/team": ""}
    assert len(queues.problems) == 1
    assert told(queues.hear(KAI_GROUP, [Changed(queue("org"))])) == {"kai/org": "", "kai/team": "kai/org"}
    assert told(queues.hear(KAI_GROUP, [Deleted(Ref("", "org", "u"), None)])) == {"kai/org": None, "kai/team": ""}


def test_the_next_quota_of_a_namespace_gets_its_pods_when_the_first_is_gone() -> None:
    queues = mirror()
    changes = queues.hear(SCHEDULER_PLUGINS, [Replaced([quota("a"), quota("b")], [])])
    assert [change.queue.namespaces for change in changes if change.queue] == [("ml",), ()]
    (_, change) = queues.hear(SCHEDULER_PLUGINS, [Deleted(Ref("ml", "a", "u"), None)])
    assert change.queue is not None
    assert change.queue.namespaces == ("ml",)


def test_a_list_drops_what_is_gone_and_keeps_other_kinds() -> None:
    queues = mirror()
    queues.hear(KAI_GROUP, [Replaced([queue("a"), queue("b")], [])])
    queues.hear(SCHEDULER_PLUGINS, [Replaced([quota("q")], [])])
    assert told(queues.hear(KAI_GROUP, [Replaced([queue("b")], [])])) == {"kai/a": None}
    assert told(queues.hear(KAI_GROUP, [NotServed()])) == {"kai/b": None}
    assert queues.queues == ("ElasticQuota/ml/q",)


class Fake:
    """In place of a reflector."""

    def __init__(self, path: str, kind: object, hear: Any, *, without: str) -> None:
        self.path, self.kind, self.hear, self.without = path, kind, hear, without


def test_the_paths_and_the_log() -> None:
    stage = Stage()
    lines: list[str] = []

    def log(line: str, *_: object, **__: object) -> None:
        lines.append(line)

    watches = QueueWatches(stage.driver, mirror(), Fake, lambda *_: None, log)  # type: ignore[arg-type]
    reflectors: list[Any] = watches.reflectors
    assert [one.path for one in reflectors] == [
        "/apis/scheduling.x-k8s.io/v1alpha1/elasticquotas",
        "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas",
        "/apis/scheduling.volcano.sh/v1beta1/queues",
        "/apis/scheduling.run.ai/v2/queues",
    ]
    assert [kind.api_group for kind in WATCHED_QUEUES][2] == VOLCANO_GROUP
    for one in reflectors:
        one.hear([NotServed()])
    assert lines == []
    reflectors[3].hear([Replaced([queue("team", "nowhere")], [])])
    reflectors[3].hear([Changed(queue("team", "nowhere"))])
    assert lines == [
        "Queue team (scheduling.run.ai): spec.parentQueue: the parent kai/nowhere of kai/team does not exist;"
        " the queue counts as a child of the root",
        "Queues of scheduling.run.ai/v2 are served now and limit their pods",
    ]
