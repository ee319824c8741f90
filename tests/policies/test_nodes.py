"""HAMi's node score, the baselines, and replicas that really spread."""

from __future__ import annotations

from dovetail.engine.why.explain import verdicts
from dovetail.model.node import Node
from tests.builders import ask, card, cluster, node, place, pod, use


def three() -> list[Node]:
    return [node(name, card(f"{name}/0")) for name in ("a", "b", "c")]


def test_binpack_fills_a_node_before_the_next() -> None:
    scheduler = cluster(*three())
    pods = [pod(f"p{n}", ask(1, 4000)) for n in range(5)]
    assert [where for where, _ in place(scheduler, *pods)] == ["a", "a", "b", "b", "c"]


def test_spread_takes_the_least_busy() -> None:
    scheduler = cluster(*three())
    pods = [pod(f"p{n}", ask(1, 2000), node_policy="spread") for n in range(5)]
    assert [where for where, _ in place(scheduler, *pods)] == ["a", "b", "c", "a", "b"]


def test_spread_follows_use_and_spread_replicas_the_replicas() -> None:
    """a and b are half full: HAMi's spread puts all three on c (0 → 3.5 → 7 < 15), spread-replicas one on each."""
    for policy, expected in (("spread", ["c", "c", "c"]), ("spread-replicas", ["c", "a", "b"])):
        scheduler = cluster(*three())
        for name in "ab":
            use(scheduler, name, f"{name}/0", 5, 4000, 50)
        pods = [pod(f"web-{n}", ask(1, 2000), node_policy=policy, owner="Deployment/x/web") for n in range(3)]
        assert [where for where, _ in place(scheduler, *pods)] == expected


def test_spread_replicas_counts_31_per_sibling_and_then_use() -> None:
    """One sibling weighs more than a full node (30)."""
    there = [pod("web-0", ask(1, 4000), owner="Deployment/x/web")]
    scheduler = cluster(*three())
    assert place(scheduler, *there)[0][0] == "a"
    wanted = pod("web-1", ask(1, 1000), node_policy="spread-replicas", owner="Deployment/x/web")
    # a: 31 + 10 × (1/10 + 0 + 4000/8000) = 37.
    assert {v.node: v.score for v in verdicts(scheduler, wanted)} == {"a": 37.0, "b": 0.0, "c": 0.0}
    lonely = pod("alone", ask(1, 1000), node_policy="spread-replicas")
    assert {v.node: v.score for v in verdicts(scheduler, lonely)} == {"a": 6.0, "b": 0.0, "c": 0.0}


def test_siblings_placed_with_another_policy_count_too() -> None:
    scheduler = cluster(*three())
    place(scheduler, pod("web-0", ask(1, 10), owner="Deployment/x/web"))
    wanted = pod("web-1", ask(1, 10), node_policy="spread-replicas", owner="Deployment/x/web")
    assert place(scheduler, wanted)[0][0] == "b"


def test_first_fit_is_the_first_by_name() -> None:
    scheduler = cluster(*three()[::-1])
    pods = [pod(f"p{n}", ask(1, 5000), node_policy="first-fit") for n in range(4)]
    assert [where for where, _ in place(scheduler, *pods)] == ["a", "b", "c", None]


def test_random_is_drawn_by_seed_and_name_and_reaches_every_node() -> None:
    pods = [pod(f"p{n}", ask(1, 1), node_policy="random") for n in range(30)]

    def drawn(seed: int) -> list[str | None]:
        scheduler = cluster(*three(), arguments={"random": {"seed": seed}})
        return [where for where, _ in place(scheduler, *pods)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert set(drawn(1)) == {"a", "b", "c"}


def test_a_nodes_score_counts_all_vendors() -> None:
    """10 × (1/20 + 0 + 4000/16000) = 3: the AMD card dilutes the NVIDIA one."""
    mixed = node("n", card("a"), card("m", vendor="AMD", model="AMD MI300X"))
    scheduler = cluster(mixed)
    use(scheduler, "n", "a", 1, 4000, 0)
    assert verdicts(scheduler, pod("p", ask(1, 1)))[0].score == 3.0
