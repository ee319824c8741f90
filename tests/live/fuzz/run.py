"""A fuzz run: attackers with a tenant's or a node's rights, canaries of another tenant, a judge, and a verdict."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

from tests.live.chaos.machines import CANARY, Machine
from tests.live.chaos.run import POD_GROUPS
from tests.live.dovetail_process import ALONE, AUDITED, Dovetail, scheduling, wrong_ledger
from tests.live.fuzz import rights
from tests.live.fuzz.attacker import NODE, TENANT, Order, Tally
from tests.live.fuzz.judge import Judge, eventually
from tests.live.fuzz.measures import FIRST, LAST, Canaries, Vitals, curve, part, quantile
from tests.live.fuzz.node import NOTES
from tests.live.fuzz.parts import BareWatch, Processors, audit_log, bindings, of_the_scheduler
from tools.controlplane.client import Access, Client, Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.objects import GPU_MEMORY, REGISTER, cards, node
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import Process

ROOT = Path(__file__).parent.parent.parent.parent
TENANTS = {"tenant-a": 40_000, "tenant-b": None}  # namespace -> MiB of GPU memory by its quota
LIARS = tuple(f"{letter}-liar" for letter in "abcdwxyz")  # before and after the honest nodes in the order of names
TENANT_THREADS = 32  # 200 requests a second where one takes up to 160 ms
CANARY_SECONDS = 1.0  # what 99 of 100 canaries may wait
FLAT = 1.10  # the last fifth's memory may be so many times that of the second
SETTLED_SECONDS = 300.0  # of a run whose caches are full, or as full as they get, in its second fifth
FILLING = 32  # MiB that a shorter run's memory may grow besides: the caches are still filling
MOST_MEMORY = 500  # MiB: docs/limits.md, for a cluster of this size
KERNEL_SECONDS = 600.0  # for compiling the kernels of the configuration, before the attack
RESTART_SECONDS = 60.0  # a canary must be bound so soon after a kill in the middle of everything
Tell = Callable[[str], None]


@dataclass
class Outcome:
    who: str
    seed: int
    tally: Tally = field(default_factory=Tally)
    waits: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    healthz: float = 0.0
    own: list[float] = field(default_factory=list)  # the scheduler's part of the waits
    processors: dict[str, float] = field(default_factory=dict)  # process -> share of one processor
    placed: int = 0
    restart: float = 0.0
    remark: str = ""  # on waits that are not the scheduler's
    found: list[str] = field(default_factory=list)

    def summary(self) -> str:
        canary, own = (
            ", ".join(f"{name} {quantile(waits, q):.2f}" for name, q in QUANTILES) for waits in (self.waits, self.own)
        )
        shares = ", ".join(f"{name} {share:.2f}" for name, share in self.processors.items())
        refused = sum(n for status, n in self.tally.statuses.items() if status.startswith("4"))
        return (
            f"{self.who}, seed {self.seed}: {self.tally.sent} requests, {self.tally.accepted} of them accepted "
            f"and {refused} refused, at {self.tally.rate:.0f}/s; {self.placed} pods placed\n"
            f"  canaries: {len(self.waits)}, seconds {canary} (the API server's part of a creation: "
            f"p99 {quantile(self.server, 0.99):.2f}); after a restart {self.restart:.1f}\n"
            f"  the scheduler's part of {len(self.own)} of these waits: seconds {own}\n"
            f"  processors of {os.cpu_count()}: {shares}\n"
            f"  memory: {part(self.memory, FIRST):.0f} → {part(self.memory, LAST):.0f} MiB, "
            f"at most {max(self.memory, default=0):.0f}; in tenths of the run {curve(self.memory)}\n"
            f"  /healthz at most {self.healthz:.2f} s\n"
            f"  findings: {len(self.found) or 'none'}"
        )


def tracebacks(text: str) -> list[str]:
    """Of each the line that names the error, and the places of ours that led to it."""
    found = []
    for one in text.split("Traceback (most recent call last)")[1:]:
        places = [line.strip() for line in one.splitlines() if "/dovetail/" in line and line.startswith("  File")]
        last = next((line for line in one.splitlines() if line and line[0].isalpha()), "")
        found.append(f"traceback: {last[:300]}: {'; '.join(places[-3:])}")
    return list(dict.fromkeys(found))


QUANTILES = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))


@dataclass(frozen=True)
class Plan:
    who: str
    seed: int
    seconds: float
    rate: float = 200.0
    canary_seconds: float = CANARY_SECONDS  # p99 may be so much
    interpreted: bool = True
    without: tuple[str, ...] = ()  # twists and acts that are left out, to narrow a finding down

    @property
    def threads(self) -> int:
        """Of the attackers. One for each node: changes of one object wait for each other in the API server anyway."""
        return len(LIARS) if self.who == NODE else TENANT_THREADS


def run(plane: ControlPlane, plan: Plan, tell: Tell = print) -> Outcome:
    """Attack for so long; everything that was found wrong is in the outcome."""
    outcome = Outcome(plan.who, plan.seed)
    tell(f"fuzz as {plan.who} with seed {plan.seed}: {plan.seconds:.0f} s at {plan.rate:.0f}/s")
    with _world(plane, plan) as world:
        order = world.order(plan)
        with (
            BareWatch(world.api) as bare,
            Canaries(world.api) as canaries,
            Vitals(world.dovetail, tell) as vitals,
        ):
            attack = _start(plane, order)
            with Processors(_pids(world, attack)) as processors:
                eventually(lambda: not attack.running(), plan.seconds + 90)
            attack.stop()
        outcome.tally = _tally(attack)
        log = audit_log(plane)
        outcome.processors = processors.shares
        outcome.own = of_the_scheduler(bare.told, bindings(log.read_text(encoding="utf-8"))) if log is not None else []
        outcome.waits, outcome.server = canaries.waits, canaries.server
        outcome.memory, outcome.healthz = vitals.memory, vitals.slowest
        outcome.found += vitals.ended + canaries.blind + vitals.sick
        if plan.who == NODE:
            _claim_honest_cards(world)
        outcome.restart = _restart(world, outcome)
        said = world.dovetail.words()
        outcome.found += world.judge.wrong + tracebacks(said) + wrong_ledger(said)
        outcome.placed = world.judge.placed
    _verdict(plan, outcome)
    for what in outcome.found[:20]:
        tell(f"  WRONG: {what}")
    if outcome.remark:
        tell(f"  NOT JUDGED: {outcome.remark}")
    tell(outcome.summary())
    return outcome


def verdict_on_waits(waits: Sequence[float], own: Sequence[float], allowed: float) -> tuple[list[str], str]:
    """Findings, and what is to be said without being one: canaries that waited for the API server and not for us.

    `own`, the scheduler's part, decides only where it is known of nine canaries in ten.
    """
    slow, part_of_it = quantile(waits, 0.99), quantile(own, 0.99)
    if slow <= allowed:
        return [], ""
    said = f"99 of 100 canaries waited up to {slow:.2f} s, {allowed:g} s are allowed"
    if len(own) < 0.9 * len(waits):
        return [f"slow: {said}; the scheduler's part is known of {len(own)} of {len(waits)}"], ""
    said += f"; the scheduler's part is up to {part_of_it:.2f} s"
    return ([f"slow: {said}"], "") if part_of_it > allowed else ([], f"{said}, the rest is the API server's")


def verdict_on_memory(samples: Sequence[float], seconds: float) -> list[str]:
    """Findings: memory that still grew in the last fifth of the run, or more of it than the documentation says."""
    first, last, most = part(samples, FIRST), part(samples, LAST), max(samples, default=0.0)
    found = []
    if last > first * FLAT + (FILLING if seconds < SETTLED_SECONDS else 0):
        found.append(f"memory: {first:.0f} MiB in the second fifth of the run, {last:.0f} MiB in the last")
    if most > MOST_MEMORY:
        found.append(f"memory: {most:.0f} MiB, at most {MOST_MEMORY} are documented")
    return found


def _verdict(plan: Plan, outcome: Outcome) -> None:
    found, outcome.remark = verdict_on_waits(outcome.waits, outcome.own, plan.canary_seconds)
    outcome.found += found
    outcome.found += verdict_on_memory(outcome.memory, plan.seconds)
    if not outcome.tally.accepted:
        outcome.found.append(f"the attackers could do nothing: {dict(outcome.tally.statuses)}")


def _claim_honest_cards(world: World) -> None:
    """Every lying node registers the canaries' card and those of h0 just before the scheduler is started anew."""
    register = json.dumps([*cards(CANARY, 1), *cards("h0", 4)])
    for name, token in world.tokens[NODE].items():
        client = Client(Access(world.plane.port, token, world.plane.authority))
        client.patch("Node", name, {"metadata": {"annotations": {**dict.fromkeys(NOTES), REGISTER: register}}})
        client.close()


def _restart(world: World, outcome: Outcome) -> float:
    """Seconds until a canary is bound by a scheduler that starts among all that the attackers left."""
    world.dovetail.kill()
    world.judge.restarted = True
    started = time.monotonic()
    world.dovetail.start(wait=False)
    canaries = Canaries(world.api)
    canaries.one()
    canaries.one()  # one without and one with a GPU
    took = time.monotonic() - started
    if canaries.blind or took > RESTART_SECONDS:
        outcome.found.append(f"restart: canaries bound {took:.1f} s after a kill: {canaries.blind}")
    return took


# --- the cluster


@dataclass
class World:
    plane: ControlPlane
    api: Client
    dovetail: Dovetail
    judge: Judge
    tokens: dict[str, dict[str, str]]  # who -> namespace or node -> its token

    def order(self, plan: Plan) -> Order:
        place = self.plane.path
        return Order(
            plan.who,
            self.tokens[plan.who],
            self.plane.port,
            str(self.plane.authority),
            plan.seed,
            plan.seconds,
            plan.rate,
            plan.threads,
            list(plan.without),
            os.environ.get("DOVETAIL_FUZZ_ACTS", str(place / "acts.log")),
        )


def honest() -> dict[str, Machine]:
    """Three HAMi nodes, one with HAMi's lock, one stock node, and the canaries' own."""
    made = [Machine("h0", "hami"), Machine("h1", "hami"), Machine("h2", "hami"), Machine("k0", "lock")]
    made += [Machine("s0", "stock"), Machine(CANARY, "hami", 1)]
    return {machine.name: machine for machine in made}


@contextmanager
def _world(plane: ControlPlane, plan: Plan) -> Iterator[World]:
    api, machines = plane.client(), honest()
    tokens = prepare(api, machines)
    quotas = {name: most for name, most in TENANTS.items() if most is not None}
    with ExitStack() as stack:
        judge = stack.enter_context(Judge(api, machines, quotas))
        stack.enter_context(Kubelet(api.access, hami=True))
        dovetail = stack.enter_context(scheduling(plane, *AUDITED, *ALONE, interpreted=plan.interpreted))
        if not plan.interpreted:
            wait_for_kernels(dovetail)
        yield World(plane, api, dovetail, judge, tokens)


def wait_for_kernels(dovetail: Dovetail) -> None:
    """Until the kernels of the configuration are loaded: memory for them is taken before the run begins."""

    def loaded() -> bool:
        made = dovetail.metric("dovetail_kernels_compiled_total") + dovetail.metric("dovetail_kernels_loaded_total")
        return made > 0 and not dovetail.metric("dovetail_kernels_compiling")

    eventually(loaded, KERNEL_SECONDS)


def prepare(api: Client, machines: dict[str, Machine]) -> dict[str, dict[str, str]]:
    """Nodes, namespaces, quotas and rights; the attackers' tokens."""
    api.create(POD_GROUPS)
    served = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
    api.wait_until(lambda: api.request("GET", served)[0] == 200, "PodGroups", 30)
    for machine in machines.values():
        api.create(machine.node())
    time.sleep(1.1)  # the lying nodes joined after the honest ones; creation times are whole seconds
    for name in LIARS:
        api.create(node(name, gpus=4, labels={"kind": "hami"}))
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    api.create({**urgent, "value": 1000})
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CANARY}})
    seats(api)
    tokens = {TENANT: {name: rights.tenant(api, name) for name in TENANTS}}
    for name, most in TENANTS.items():
        if most is not None:
            quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus", "namespace": name}}
            api.create({**quota, "spec": {"hard": {f"limits.{GPU_MEMORY}": str(most)}}})
        for claim in ("claim-0", "claim-1", "claim-of-no-class"):
            api.create(_claim(claim, name))
    return {**tokens, NODE: {name: rights.node(api, name) for name in LIARS}}


def seats(api: Client) -> None:
    """The shipped FlowSchemas, for the user `dovetail`: the API server's own fairness is not what is tested."""
    for item in yaml.safe_load_all((ROOT / "deploy" / "flowschema.yaml").read_text(encoding="utf-8")):
        for rule in item["spec"].get("rules", []):
            rule["subjects"] = [{"kind": "User", "user": {"name": "dovetail"}}]
        api.ask("POST", f"/apis/{item['apiVersion']}/{item['kind'].lower()}s", item)


def _claim(name: str, namespace: str) -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": name}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


# --- the attackers' process


def _start(plane: ControlPlane, order: Order) -> Process:
    path = plane.path / "order.json"
    path.touch(0o600)  # it holds tokens
    path.write_text(json.dumps(asdict(order)), encoding="utf-8")
    log = plane.path / f"attack-{order.who}.log"
    command = [sys.executable, "-m", "tests.live.fuzz.attacker", str(path)]
    return Process("attack", command, log, PYTHONPATH=str(ROOT))


def _pids(world: World, attack: Process) -> dict[str, int]:
    pids = {"API server": world.plane.process("kube-apiserver").pid, "etcd": world.plane.process("etcd").pid}
    if world.dovetail.process is not None:
        pids["scheduler"] = world.dovetail.process.pid
    return {**pids, "attackers": attack.pid, "canaries and judge": os.getpid()}


def _tally(attack: Process) -> Tally:
    last = attack.last_words(1)
    try:
        said = json.loads(last)
    except ValueError:
        raise RuntimeError(f"the attackers failed:\n{attack.last_words()}") from None
    tally = Tally(**{key: value for key, value in said.items() if key in ("sent", "seconds")})
    tally.statuses.update(said["statuses"])
    tally.kinds.update(said["kinds"])
    return tally
