"""A churn run: nodes, cards, pods, owners, policies, namespaces, quotas, claims, PodGroups and Services come and go.

Every object has a new name, and as many are there at the end as at the start: what the scheduler keeps must be, too.
No namespace is made while many of them are still being deleted. So their number does not depend on how fast the
namespace controller is, and memory is compared at equal numbers of objects.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.live.chaos.machines import CANARY, Machine
from tests.live.chaos.run import POD_GROUPS
from tests.live.dovetail_process import ALONE, AUDITED, scheduling, wrong_ledger
from tests.live.fuzz.judge import Judge
from tests.live.fuzz.measures import Canaries, Vitals, curve, part, quantile
from tests.live.fuzz.pods import GANG, sound, word
from tests.live.fuzz.run import Tell, tracebacks, wait_for_kernels
from tools.controlplane.client import ApiError, Client, Object, path_of
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import GPU_MEMORY, REGISTER, card, gpu_limits, pod
from tools.controlplane.plane import ControlPlane

WARM, LAST = (0.25, 0.4), (0.85, 1.0)  # parts of the run whose memory is compared
WITHIN = 0.10  # of the memory after the warm-up
STEPS = 60.0  # a second at most: a run that takes all of the processors leaves none to the namespace controller
MOST_NAMESPACES = 24  # in all, with those that are being deleted: no further one is made meanwhile
LOOK_EVERY = 1.0  # seconds between two counts of namespaces
PILED_UP = {"Namespace": MOST_NAMESPACES + 12, "Pod": 400}  # more at any time: a verdict on memory says nothing
LEAST_NAMESPACES = 0.02  # of them a second must be made: else the namespace controller does not work
TOLD_EVERY = 60.0  # seconds
# Without the second, claims stay for ever, and their namespaces with them. By default both may ask 20 times a second:
# then namespaces are deleted more slowly than they are made.
CONTROLLERS = "namespace persistentvolumeclaim-protection"
QUICK = ("--kube-api-qps=500", "--kube-api-burst=1000")
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"
MOST = {"Node": 12, "Namespace": 6, "Pod": 120, "PodGroup": 10, "ResourceQuota": 6, "Claim": 10, "Service": 10}


@dataclass
class Outcome:
    seed: int
    made: Counter[str] = field(default_factory=Counter)  # kind -> how many objects were created
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)  # MiB, twice a second
    there: list[tuple[int, int]] = field(default_factory=list)  # namespaces and pods, once a minute
    found: list[str] = field(default_factory=list)

    def summary(self) -> str:
        made = ", ".join(f"{count} {kind}s" for kind, count in sorted(self.made.items()))
        warm, last = part(self.memory, WARM), part(self.memory, LAST)
        return (
            f"churn, seed {self.seed}: {made} in {self.seconds:.0f} s\n"
            f"  canaries: {len(self.waits)}, seconds p50 {quantile(self.waits, 0.5):.2f}, "
            f"p99 {quantile(self.waits, 0.99):.2f}, max {quantile(self.waits, 1.0):.2f}\n"
            f"  there were {_most(self.there, 0)} namespaces and {_most(self.there, 1)} pods\n"
            f"  memory: {warm:.0f} → {last:.0f} MiB ({last / max(warm, 1.0) - 1:+.1%}); in tenths of the run "
            f"{curve(self.memory)}\n"
            f"  findings: {len(self.found) or 'none'}"
        )


class Churn:
    """`step()` creates or removes one object, or changes one node's cards."""

    def __init__(self, api: Client, machines: dict[str, Machine], seed: int) -> None:
        self._api, self._machines, self._dice = api, machines, random.Random(seed)
        self.made: Counter[str] = Counter()
        self.crowded = False  # many namespaces are still being deleted: make no further ones
        self._there: dict[str, deque[tuple[str, str]]] = {kind: deque() for kind in MOST}  # (namespace, name)
        self._makers: dict[str, Callable[[str], None]] = {
            "Node": self._node,
            "Namespace": self._namespace,
            "Pod": self._pod,
            "PodGroup": self._group,
            "ResourceQuota": self._quota,
            "Claim": self._claim,
            "Service": self._service,
        }
        self._kinds = ["Pod"] * 12 + [kind for kind in MOST if kind != "Pod"] + ["Cards"]

    def step(self) -> None:
        kind = self._dice.choice(self._kinds)
        if kind == "Cards":
            self._new_cards()
        elif len(self._there[kind]) >= MOST[kind]:
            if kind != "Namespace" or not self.crowded:
                self._remove(kind)
        elif kind in ("Node", "Namespace") or self._there["Namespace"]:
            self.made[kind] += 1
            self._makers[kind](f"{kind.lower()}-{self.made[kind]}-{word(self._dice, 4)}")

    def _some_namespace(self) -> str:
        return self._dice.choice(self._there["Namespace"])[1]

    def _put(self, kind: str, name: str, item: Object, path: str = "") -> None:
        namespace = item["metadata"].get("namespace", "")
        path = path or path_of(item["kind"], namespace=namespace)
        status, said = self._api.request("POST", path, item)
        if status < 300:
            self._there[kind].append((namespace, name))
        elif status not in (403, 404, 409):  # its namespace is being deleted
            raise ApiError(status, said, f"POST {path}")

    # --- what comes

    def _node(self, name: str) -> None:
        machine = self._machines[name] = Machine(name, "hami", self._dice.randrange(1, 5))
        made = machine.node()
        made["metadata"]["labels"] |= {f"label-{word(self._dice)}": word(self._dice), "kind": word(self._dice)}
        self._put("Node", name, made)

    def _namespace(self, name: str) -> None:
        labels = {"team": word(self._dice)}
        self._put("Namespace", name, {"apiVersion": "v1", "kind": "Namespace", "metadata": _meta(name, labels=labels)})

    def _pod(self, name: str) -> None:
        item, _ = sound(self._dice, name, self._some_namespace())
        item["metadata"]["labels"][word(self._dice)] = word(self._dice)
        self._put("Pod", name, item)

    def _group(self, name: str) -> None:
        namespace = self._some_namespace()
        made = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": _meta(name, namespace)}
        self._put("PodGroup", name, {**made, "spec": {"minMember": 2}}, GROUPS.format(namespace))
        for number in range(2):
            share = gpu_limits(1, memory=self._dice.randrange(100, 900))
            member = pod(f"{name}-{number}", share, namespace=namespace, labels={GANG: name})
            self.made["Pod"] += 1
            self._put("Pod", member["metadata"]["name"], member)

    def _quota(self, name: str) -> None:
        made = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": _meta(name, self._some_namespace())}
        self._put("ResourceQuota", name, {**made, "spec": {"hard": {f"limits.{GPU_MEMORY}": "60000"}}})

    def _claim(self, name: str) -> None:
        made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _meta(name, self._some_namespace())}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        self._put("Claim", name, {**made, "spec": {**spec, "storageClassName": word(self._dice)}})
        namespace = made["metadata"]["namespace"]  # type: ignore[index]
        user = pod(f"{name}-user", {"cpu": "10m"}, namespace=namespace)
        user["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
        self.made["Pod"] += 1
        self._put("Pod", f"{name}-user", user)

    def _service(self, name: str) -> None:
        made = {"apiVersion": "v1", "kind": "Service", "metadata": _meta(name, self._some_namespace())}
        spec = {"selector": {"app": word(self._dice)}, "ports": [{"port": 80}]}
        self._put("Service", name, {**made, "spec": {**spec, "clusterIP": "None"}})  # there are 254 addresses

    def _new_cards(self) -> None:
        """Cards are added to a node, with UUIDs and models that were never seen, and taken out again."""
        if not self._there["Node"]:
            return
        _, name = self._dice.choice(self._there["Node"])
        stem, own = word(self._dice, 10), self._machines[name].register()
        more = [card(f"GPU-{name}-{stem}-{n}", len(own) + n, model=f"Model {stem}") for n in range(2)]
        text = json.dumps([*own, *more] if self._dice.random() < 0.7 else own)
        self._api.patch("Node", name, {"metadata": {"annotations": {REGISTER: text}}})
        self.made["Register"] += 1

    # --- what goes

    def _remove(self, kind: str) -> None:
        namespace, name = self._there[kind].popleft()
        if kind == "Namespace" and self._dice.random() < 0.5:  # else the controller ends its pods, in half a minute
            self._api.request("DELETE", path_of("Pod", namespace=name), gracePeriodSeconds=0)
        if kind == "PodGroup":
            self._api.request("DELETE", f"{GROUPS.format(namespace)}/{name}")
        elif kind == "Node":
            self._dismiss(name)
        else:
            self._api.delete({"Claim": "PersistentVolumeClaim"}.get(kind, kind), name, namespace, **_grace(kind))
        if kind == "Namespace":
            for what, there in self._there.items():
                self._there[what] = deque(one for one in there if one[0] != name)

    def _dismiss(self, name: str) -> None:
        """The node leaves and takes its pods along."""
        self._api.delete("Node", name)
        for item in self._api.list("Pod", None, fieldSelector=f"spec.nodeName={name}"):
            self._api.delete("Pod", item["metadata"]["name"], item["metadata"]["namespace"], gracePeriodSeconds=0)
        del self._machines[name]


def _meta(name: str, namespace: str = "", labels: dict[str, str] | None = None) -> Object:
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels or {}}


def _grace(kind: str) -> Object:
    return {"gracePeriodSeconds": 0} if kind == "Pod" else {}


def run(plane: ControlPlane, seed: int, seconds: float, interpreted: bool = True, tell: Tell = print) -> Outcome:
    """Churn for so long; everything that was found wrong is in the outcome."""
    api, outcome, machines = plane.client(), Outcome(seed), {CANARY: Machine(CANARY, "hami", 1)}
    plane.start_controller_manager(CONTROLLERS, QUICK)
    _prepare(api, machines)
    with ExitStack() as stack:
        judge = stack.enter_context(Judge(api, machines, {}))
        stack.enter_context(Kubelet(api.access))
        dovetail = stack.enter_context(scheduling(plane, *AUDITED, *ALONE, interpreted=interpreted))
        if not interpreted:
            wait_for_kernels(dovetail)
        churn = Churn(api, machines, seed)
        with Canaries(api) as canaries, Vitals(dovetail, tell) as vitals:
            outcome.seconds = _keep_on(api, churn, seconds, vitals, outcome, tell)
        outcome.made = churn.made
        outcome.waits, outcome.memory = canaries.waits, vitals.memory
        said = dovetail.words()
        outcome.found += (
            vitals.ended + canaries.blind + vitals.sick + judge.wrong + tracebacks(said) + wrong_ledger(said)
        )
        outcome.found += [*piled_up(outcome.there), *stuck(outcome.made["Namespace"], outcome.seconds)]
    for what in outcome.found[:20]:
        tell(f"  WRONG: {what}")
    tell(outcome.summary())
    return outcome


def _keep_on(api: Client, churn: Churn, seconds: float, vitals: Vitals, outcome: Outcome, tell: Tell) -> float:
    """Churn; returns how many seconds it took."""
    started, looked, told, steps = time.monotonic(), 0.0, 0.0, 0
    while (now := time.monotonic() - started) < seconds:
        steps = max(steps + 1, int((now - 1.0) * STEPS))  # what was missed for more than a second is not made up for
        time.sleep(max(0.0, steps / STEPS - now))
        churn.step()
        if now - looked > LOOK_EVERY:
            looked, churn.crowded = now, count(api, "Namespace") >= MOST_NAMESPACES
        if now - told > TOLD_EVERY and vitals.memory:
            told = now
            outcome.there.append((count(api, "Namespace"), count(api, "Pod")))
            there = "{} namespaces and {} pods".format(*outcome.there[-1])
            tell(f"  {now:6.0f} s  {churn.made.total()} objects, there are {there}, {vitals.memory[-1]:.0f} MiB")
    outcome.there.append((count(api, "Namespace"), count(api, "Pod")))
    return now


def count(api: Client, kind: str) -> int:
    """How many there are, without reading them."""
    first = api.ask("GET", path_of(kind, namespace=None), limit=1)
    return len(first["items"]) + int(first["metadata"].get("remainingItemCount", 0))


def _most(there: Sequence[tuple[int, int]], which: int) -> str:
    numbers = [one[which] for one in there]
    return f"{min(numbers, default=0)} to {max(numbers, default=0)}"


def _prepare(api: Client, machines: dict[str, Machine]) -> None:
    api.create(POD_GROUPS)
    api.wait_until(lambda: api.request("GET", GROUPS.format(CANARY))[0] == 200, "PodGroups", 30)
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CANARY}})
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    api.create({**urgent, "value": 1000})
    api.create(machines[CANARY].node())


def piled_up(there: Sequence[tuple[int, int]]) -> list[str]:
    """Objects that should be gone: then memory grows with what is there, and a verdict on it says nothing."""
    namespaces, pods = (max((one[n] for one in there), default=0) for n in (0, 1))
    if namespaces <= PILED_UP["Namespace"] and pods <= PILED_UP["Pod"]:
        return []
    return [f"churn: up to {namespaces} namespaces and {pods} pods were there: they are not deleted as they are made"]


def stuck(namespaces: int, seconds: float) -> list[str]:
    """Namespaces that nobody deletes: then no further ones are made, and the run is no churn of namespaces."""
    if namespaces >= seconds * LEAST_NAMESPACES:
        return []
    return [f"churn: only {namespaces} namespaces were made in {seconds:.0f} s: the old ones are not deleted"]


def grown(outcome: Outcome) -> str:
    """What is wrong with the memory after the warm-up; "" = nothing."""
    warm, last = part(outcome.memory, WARM), part(outcome.memory, LAST)
    return "" if abs(last - warm) <= WITHIN * warm else f"{warm:.0f} MiB after the warm-up, {last:.0f} MiB at the end"
