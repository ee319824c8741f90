"""Faults of pods: labels and records that are changed, pods that go while they are bound, gangs, quotas, priorities."""

from __future__ import annotations

from tests.live.assigned import ALLOCATED
from tests.live.chaos.world import GROUPS, WHOLE, World, is_load
from tools.controlplane.client import ApiError, Object
from tools.controlplane.objects import GPU, GPU_MEMORY, gpu_limits, pod

QUOTA_SPACE, DYING_SPACE = "limited", "dying"


def _has_record(item: Object) -> bool:
    return bool((item["metadata"].get("annotations") or {}).get(ALLOCATED))


def _asks_for_a_part(item: Object) -> bool:
    limits = item["spec"]["containers"][0]["resources"].get("limits", {})
    return GPU_MEMORY in limits and GPU not in limits


def webhook_label(w: World) -> None:
    """A running pod that asked for a part without a number gets HAMi's label for pods its webhook leaves alone."""
    name = w.any_running(_asks_for_a_part)
    if name is None:
        return
    w.fill(3)
    w.label("Pod", name, "hami.io/webhook", "ignore")
    w.pause(1.0, 2.0)
    w.label("Pod", name, "hami.io/webhook", None)


def record_edited(w: World) -> None:
    """Put back before anything restarts: what a scheduler never saw otherwise it cannot doubt."""
    name = w.any_running(_has_record)
    if name is None:
        return
    before = w.api.find("Pod", name)
    if before is None:
        return
    record = before["metadata"]["annotations"][ALLOCATED]
    card = record.split(",")[0]
    moved = record.replace(card, card[:-1] + str((int(card[-1]) + 1) % 4))
    text = w.dice.choice((f"{card},NVIDIA,1,0:;", moved, record.replace(card, "GPU-nowhere"), "garbage"))
    w.details.append(repr(text))
    w.fill(3)
    w.note("Pod", name, ALLOCATED, text)
    w.pause(0.5, 2.0)
    w.note("Pod", name, ALLOCATED, record)
    w.pause(0.3, 0.8)


def record_removed(w: World) -> None:
    """In half of the cases the scheduler is started again meanwhile: what is to be allocated still says it all."""
    name = w.any_running(lambda item: _has_record(item) and item["spec"]["nodeName"].startswith("h"))
    if name is None:
        return
    before = w.api.find("Pod", name)
    if before is None:
        return
    record = before["metadata"]["annotations"][ALLOCATED]
    w.fill(3)
    w.note("Pod", name, ALLOCATED, None)
    w.pause(0.3, 1.0)
    if w.dice.random() < 0.5:
        w.details.append("and a restart")
        w.dovetail.kill()
        w.dovetail.start()
    w.pause(0.5, 1.5)
    w.note("Pod", name, ALLOCATED, record)
    w.pause(0.3, 0.8)


def deleted_while_bound(w: World) -> None:
    names = w.fill(10)
    for name in names:
        if w.dice.random() < 0.7:
            w.remove(name, now=w.dice.random() < 0.5)
    w.pause(0.2, 0.5)


def deleted_by_force(w: World) -> None:
    for _ in range(5):
        if name := w.any_running(is_load):
            w.remove(name, now=True)
    w.fill(5)
    w.pause(0.2, 0.5)


def finalizer(w: World) -> None:
    """A pod that is being deleted holds its card until it is gone."""
    name = w.any_running(lambda item: is_load(item) and not item["metadata"].get("deletionTimestamp"))
    if name is None:
        return
    try:
        w.api.patch("Pod", name, {"metadata": {"finalizers": ["chaos/keep"]}})
    except ApiError as error:
        if error.status not in (404, 409, 422):  # 422: it is being deleted by now
            raise
    w.remove(name, now=True)
    w.fill(2)
    w.pause(0.5, 1.5)
    w.quietly(lambda: w.api.patch("Pod", name, {"metadata": {"finalizers": None}}))
    w.pause(0.2, 0.5)


def changed_while_bound(w: World) -> None:
    for name in w.fill(6):
        w.label("Pod", name, "turn", str(w.dice.randrange(9)))
    w.pause(0.2, 0.5)


def burst(w: World) -> None:
    names = w.fill(40)
    w.pause(0.5, 1.5)
    for name in names:
        w.remove(name, now=True)


def gang_with_its_group(w: World) -> None:
    name = w.gang(w.dice.randrange(2, 5), 2)
    w.pause(0.5, 1.5)
    w.disband(name)


def gang_before_its_group(w: World) -> None:
    """A member that comes before its PodGroup waits for it, whatever room there is."""
    with w.reserved(w.machine("hami").name) as only:
        name = w.gang(2, 3, group=False, **only)
        w.pause(0.5, 2.0)
        if bound := w.witness.bound_of_gang.get(f"default/{name}"):
            w.wrong.append(f"gang: {len(bound)} members of {name} were bound before there was a PodGroup")
        w.pod_group(name, 3)
        w.pause(0.3, 0.8)
        if bound := w.witness.bound_of_gang.get(f"default/{name}"):
            w.wrong.append(f"gang: {len(bound)} members of {name} were bound, 2 of 3 are there")
        w.member(name, **only)
        w.pause(0.5, 1.5)
        w.disband(name)


def gang_loses_its_group(w: World) -> None:
    """`kubectl delete -f`: the PodGroup goes first, members that wait stay behind for a moment."""
    with w.reserved(w.machine("hami").name) as only:
        name = w.gang(2, 3, **only)
        w.pause(0.3, 0.8)
        w.api.request("DELETE", f"{GROUPS}/{name}")
        w.pause(0.5, 1.5)
        if bound := w.witness.bound_of_gang.get(f"default/{name}"):
            w.wrong.append(f"gang: {len(bound)} of 3 members of {name} were bound after its PodGroup was deleted")
        w.disband(name)


def gang_cut_short(w: World) -> None:
    """kill -9 between two binds of a gang on a node with a lock, and a pod of higher priority that comes then."""
    one = w.machine("lock")
    w.kubelet.start_delay = 1.5
    with w.reserved(one.name) as only:
        gang = w.gang(4, 4, **only)
        try:
            w.api.wait_until(lambda: w.witness.bound_of_gang.get(f"default/{gang}"), "a first member", 6)
        except TimeoutError:
            w.details.append("no member was bound in 6 s")
        w.dovetail.kill()
        urgent = w.name("urgent")
        w.create(pod(urgent, WHOLE, priorityClassName="urgent", **only))
        w.dovetail.start()
        w.kubelet.start_delay = 0.0
        w.pause(6.0, 8.0)
        w.wrong += [what for what in w.in_part() if gang in what]
        w.disband(gang)
        w.remove(urgent, now=True)


def priorities(w: World) -> None:
    names = w.fill(5, priorityClassName="urgent")
    w.pause(0.5, 1.5)
    for name in names:
        w.remove(name, now=True)


def quota_changed(w: World) -> None:
    hard = f"limits.{GPU_MEMORY}"
    names = [w.name("q") for _ in range(4)]
    for number, name in enumerate(names):
        w.create(pod(f"{name}-{number}", gpu_limits(1, memory=2000), namespace=QUOTA_SPACE))
    for amount in w.dice.sample(("2000", "4000", "8000", "0"), 3):
        w.api.patch("ResourceQuota", "q", {"spec": {"hard": {hard: amount}}}, namespace=QUOTA_SPACE)
        w.pause(0.3, 0.8)
    for number, name in enumerate(names):
        w.api.delete("Pod", f"{name}-{number}", QUOTA_SPACE, gracePeriodSeconds=0)


def namespace_deleted(w: World) -> None:
    space = f"{DYING_SPACE}-{w.made}"
    w.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    for _ in range(4):
        w.create(pod(w.name("d"), gpu_limits(1), namespace=space))
    w.pause(0.0, 0.5)
    w.api.delete("Namespace", space)
    w.pause(0.5, 1.5)


def init_container_ends(w: World) -> None:
    """What only its init container held is free once that has ended."""
    name = w.name("init")
    item = pod(name, gpu_limits(1, memory=2000, cores=10), labels={"load": "1"})
    limits = {key: str(value) for key, value in gpu_limits(1, memory=12000, cores=80).items()}
    item["spec"]["initContainers"] = [{"name": "first", "image": "x", "resources": {"limits": limits}}]
    w.create(item)
    w.pause(0.5, 1.0)
    ended = {"exitCode": 0, "reason": "Completed"}
    state = {"name": "first", "image": "x", "imageID": "", "ready": True, "restartCount": 0}
    status = {"initContainerStatuses": [{**state, "state": {"terminated": ended}}]}
    w.quietly(lambda: w.api.patch("Pod", name, {"status": status}, part="status"))
    w.create(pod(w.name("p"), gpu_limits(1, memory=12000, cores=80), labels={"load": "1"}))
    w.pause(0.5, 1.0)


POD_FAULTS = (
    *(webhook_label, record_edited, record_removed, deleted_while_bound, deleted_by_force, finalizer),
    *(changed_while_bound, burst),
    *(gang_with_its_group, gang_before_its_group, gang_loses_its_group, gang_cut_short),
    *(priorities, quota_changed, namespace_deleted, init_container_ends),
)
