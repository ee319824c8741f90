"""One story for a compiled and for an interpreted scheduler: the same decisions, the same cards, the same books."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from dovetail.model.events import NodeChanged
from dovetail.model.pod import Profile, Quota
from tests.engine.pictures import made, picture, said
from tests.properties import with_examples
from tests.strategies import World, renamed, worlds

QUOTA = Quota("default", "q", device_memory_mib={"NVIDIA": 12_000}, device_compute_milli={"NVIDIA": 3000})


def check_compiled(profile: Profile, cache: bool, examples: int) -> int:
    """Raises where they differ; returns how many pods were placed."""
    compared = {"placed": 0}

    @with_examples(examples)
    @given(worlds(nodes=8, pods=20, profiles=(profile,)))
    def property_holds(world: World) -> None:
        for quotas in ((), (QUOTA,)):
            both = made(world.nodes, "interpreted", quotas), made(world.nodes, "compiled", quotas, cache=cache)
            plain, compiled = (said(scheduler.place(world.groups)) for scheduler in both)
            assert plain == compiled
            compared["placed"] += sum(node is not None for _, node, _, _ in plain)
            # Some leave, a node changes, a what-if is undone, and the groups come again.
            leaving = [uid for uid, node, _, _ in plain if node is not None][::2]
            changed = replace(world.nodes[0], unschedulable=not world.nodes[0].unschedulable)
            again = [
                replace(gang, pods=tuple(renamed(one, f"{one.name}-again") for one in gang.pods))
                for gang in world.groups
            ]
            later = []
            for scheduler in both:
                for uid in leaving:
                    scheduler.ledger.release(uid)
                scheduler.handle(NodeChanged(0.0, changed))
                with scheduler.ledger.transaction():
                    scheduler.place(again)
                later.append(said(scheduler.place(again)))
            assert later[0] == later[1]
            assert picture(both[0]) == picture(both[1])

    property_holds()
    return compared["placed"]
