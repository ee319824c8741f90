"""What Prometheus is told of GPUs, waiting pods and latencies, with the arithmetic."""

from __future__ import annotations

import pytest

from dovetail.engine.scheduler import Scheduler
from dovetail.kube.conversion.reading import Held
from dovetail.kube.live.known import Known, Stand
from dovetail.kube.live.metrics.gpus import MOST_MODELS
from dovetail.kube.live.metrics.latencies import Latencies
from dovetail.model.decision import Decision, Share
from dovetail.model.device import Device
from dovetail.model.events import Bind, NodeChanged, PodObserved
from dovetail.model.node import Node
from dovetail.model.pod import Pod, RunningPod
from dovetail.model.reason import Reason
from tests.builders import ask, card, node, pod
from tests.kube.live.metric_service import NOW, engine, metrics, sample, series, service

T4, A100 = "NVIDIA Tesla T4", "NVIDIA A100"


def _cards(name: str, model: str, count: int, **facts: object) -> tuple[Device, ...]:
    return tuple(card(f"{name}/{n}", 8000, n, model=model, **facts) for n in range(count))


def _cluster(*nodes: Node) -> Scheduler:
    made = engine()
    for one in nodes:
        made.handle(NodeChanged(0.0, one))
    return made


def _runs(made: Scheduler, name: str, at: str, *shares: Share) -> None:
    made.handle(PodObserved(0.0, RunningPod(pod(name, ask(len(shares))), at, shares)))


def test_memory_compute_slots_and_free_gpus_by_model() -> None:
    """T4: a/0 holds 2,000 of 8,000 MiB and 50 %: the smaller rest is 0.5 GPU; a/1 and b/0 are whole: 2.5 GPUs free."""
    made = _cluster(
        node("a", *_cards("a", T4, 2)), node("b", *_cards("b", T4, 1)), node("c", *_cards("c", A100, 4, slots=1))
    )
    _runs(made, "p", "a", Share(0, "a/0", 2000, 500))
    text = metrics(service(made))
    assert series(text, "dovetail_gpus") == {f'{{model="{T4}"}}': 3, f'{{model="{A100}"}}': 4}
    t4 = {
        name: sample(text, f'dovetail_{name}{{model="{T4}"}}')
        for name in ("gpus_in_use", "gpus_whole_free", "gpus_free", "gpus_free_in_pieces", "gpus_largest_free_block")
    }
    assert list(t4.values()) == [1, 2, 2.5, 0.5, 1]
    assert sample(text, f'dovetail_gpu_slots{{model="{T4}"}}') == 30
    assert sample(text, f'dovetail_gpu_slots_allocated{{model="{T4}"}}') == 1
    assert sample(text, f'dovetail_gpu_memory_bytes{{model="{T4}"}}') == 3 * 8000 * 2**20
    assert sample(text, f'dovetail_gpu_memory_allocated_bytes{{model="{T4}"}}') == 2000 * 2**20
    assert sample(text, f'dovetail_gpu_compute{{model="{T4}"}}') == 3
    assert sample(text, f'dovetail_gpu_compute_allocated{{model="{T4}"}}') == 0.5
    assert sample(text, f'dovetail_gpus_largest_free_block{{model="{A100}"}}') == 4


def test_gpus_that_take_no_pod_are_not_free() -> None:
    """One unhealthy, one cordoned, two on a cordoned node; the fifth is free."""
    made = _cluster(
        node("a", card("a/0", healthy=False), card("a/1", cordoned=True, index=1), card("a/2", index=2)),
        node("b", gpus=2, unschedulable=True),
    )
    text = metrics(service(made))
    values = [sample(text, f'dovetail_{name}{{model="NVIDIA"}}') for name in ("gpus", "gpus_unusable", "gpus_free")]
    assert values == [5, 4, 1]


def test_gpus_of_a_node_that_is_gone_are_not_counted() -> None:
    """A pod names a node that does not exist, and a card that no node registers."""
    made = _cluster(node("a", gpus=1))
    _runs(made, "p", "gone", Share(0, "GPU-x", 100, 10))
    assert series(metrics(service(made)), "dovetail_gpus") == {'{model="NVIDIA"}': 1}


def test_models_have_a_bound_and_the_rest_is_counted_together() -> None:
    """60 models with one card, and one with two: 50 are shown, 11 are `other`, with 61 + 1 − 51 = 11 cards."""
    made = _cluster(
        node("a", *(card(f"a/{n}", index=n, model=f"M{n:02d}") for n in range(60))), node("b", *_cards("b", "Z", 2))
    )
    text = metrics(service(made))
    shown = series(text, "dovetail_gpus")
    assert len(shown) == MOST_MODELS + 1
    assert (shown['{model="Z"}'], shown['{model="other"}'], shown.total()) == (2, 11, 62)
    assert sample(text, "dovetail_gpu_models_left_out") == 11


def test_a_cluster_without_nodes_has_no_gpus() -> None:
    text = metrics(service(engine()))
    assert series(text, "dovetail_gpus") == {}
    assert "# TYPE dovetail_gpus gauge" in text


def _waiting(name: str, reason: str, created: float, group: str = "") -> Known:
    made = pod(name, ask(1), created=created, group=group)
    return Known(made.key, Stand.WAITS, "1", made, condition=(reason, "text"))


def _holding(name: str, cards: int, runs: bool, ends: bool) -> Known:
    made: Pod = pod(name, ask(cards))
    shares = tuple(Share(0, f"{name}/{n}", 100, 10) for n in range(cards))
    held = Held(RunningPod(made, "a", shares), shares)
    return Known(made.key, Stand.HOLDS, "1", made, held, runs=runs, ends=ends)


def test_waiting_pods_by_reason_and_the_oldest_of_them() -> None:
    """Created at 400, 700 and 900, now is 1,000: the oldest waits for 600 s. A gated pod and one being bound do not."""
    pods = [
        _waiting("a", "Unschedulable", 700),
        _waiting("b", "Unschedulable", 400, group="ml/train"),
        _waiting("c", "", 900),
        _waiting("d", "SchedulingGated", 100),
        _waiting("e", "a tenant's word", 950, group="ml/train"),
        _waiting("placed", "", 50),
    ]
    made = service(pods={one.pod.uid: one for one in pods})
    assert made.driver is not None
    made.driver.on_the_way["uid-placed"] = None  # type: ignore[assignment]
    text = metrics(made)
    assert series(text, "dovetail_waiting_pods") == {
        '{reason="Unschedulable"}': 2,
        '{reason="Queued"}': 1,
        '{reason="SchedulingGated"}': 1,
        '{reason="Other"}': 1,
    }
    assert sample(text, "dovetail_oldest_waiting_pod_seconds") == NOW - 400
    assert sample(text, "dovetail_gangs_waiting") == 1


def test_gpus_of_pods_that_do_not_run() -> None:
    """Two starting pods with 2 + 1 cards, one terminating with 4; the pod that runs with 8 is not counted."""
    pods = [
        _holding("a", 2, runs=False, ends=False),
        _holding("b", 1, runs=False, ends=False),
        _holding("c", 4, runs=True, ends=True),
        _holding("d", 8, runs=True, ends=False),
    ]
    text = metrics(service(pods={one.pod.uid: one for one in pods}))
    assert series(text, "dovetail_gpus_held_idle") == {'{state="starting"}': 3, '{state="terminating"}': 4}
    assert series(text, "dovetail_pods_holding_idle_gpus") == {'{state="starting"}': 2, '{state="terminating"}': 1}


def test_latencies_of_one_pod() -> None:
    """Seen at 10, offered again at 12, placed at 15, bound at 16: it waited 6 s, of which the Binding took 1 s."""
    now = [10.0]
    made = Latencies(lambda: now[0])
    made.arrived([pod("p", uid="p")])
    for at in (12.0, 15.0):
        now[0] = at
        made.arrived([pod("p", uid="p")])
    made.placed("p")
    now[0] = 16.0
    made.bound("p")
    assert (made.waits.sum, made.waits.cumulative[-1]) == (6.0, 1)
    assert (made.binds.sum, made.binds.cumulative[-1]) == (1.0, 1)
    assert len(made) == 0


def test_a_pod_that_is_gone_is_forgotten() -> None:
    made = Latencies()
    made.arrived([pod("p", uid="p")])
    made.placed("p")
    made.gone("p")
    made.bound("p")
    assert (len(made), made.waits.cumulative[-1], made.binds.cumulative[-1]) == (0, 0, 0)


@pytest.mark.parametrize(("began", "placed", "bucket"), [(9.99995, True, 0), (9.992, False, 6), (0.0, False, 13)])
def test_a_decision_is_counted_by_its_result(began: float, placed: bool, bucket: int) -> None:
    """0.00005 s is in the first bucket, 0.008 s in the seventh, 10 s above the last."""
    made = Latencies(lambda: 10.0)
    one = pod("p", ask(1))
    bind = Bind(one, Decision(one.uid, "a", (), Reason.OK, 1))
    made.decided(began, [bind] if placed else [])
    found = made.decisions[("placed",) if placed else ("waits",)]
    assert found.cumulative.index(1) == bucket
