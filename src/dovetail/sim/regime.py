"""Who is next, who yields, and who may have how much in a run: by name, so that it can be sent, cached and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from dovetail.engine.scheduler import Rights
from dovetail.model.rights import GPUS, Queue, gpu_amount
from dovetail.policies.orders import BY_PRIORITY, ORDERS
from dovetail.policies.yielding import YIELDING
from dovetail.sim.trace import TraceError

NO_PREEMPTION = "none"


@dataclass(frozen=True, slots=True)
class Regime:
    """A row of each table. `queues` are packed, so that a regime can be hashed."""

    order: str = BY_PRIORITY.name  # a row of policies/orders.py
    preemption: str = NO_PREEMPTION  # a row of policies/yielding.py
    queues: bytes = b""  # see `packed`
    queues_name: str = ""  # where they come from

    def __post_init__(self) -> None:
        for what, name, known in (
            ("order", self.order, tuple(ORDERS)),
            ("preemption", self.preemption, (NO_PREEMPTION, *YIELDING)),
        ):
            if name not in known:
                raise TraceError(f"{what} {name!r}: there is {', '.join(known)}")

    def rights(self, queue: str) -> Rights:
        """The rights of the scheduler. `queue`: `backfill` or `strict`."""
        return Rights(queue, ORDERS[self.order], YIELDING.get(self.preemption))

    @property
    def tree(self) -> tuple[Queue, ...]:
        return tuple(msgspec.msgpack.decode(self.queues, type=list[Queue])) if self.queues else ()


DEFAULT_REGIME = Regime()


def packed(queues: Sequence[Queue]) -> bytes:
    return msgspec.msgpack.encode(list(queues)) if queues else b""


def queues_by_tenant(queues: Sequence[Queue]) -> dict[str, str]:
    """Tenant of a trace -> the name of its queue.

    A queue is that of the tenants that it lists as namespaces, and of the tenant that has its name. `volcano/ml` is the
    queue of the tenant `ml`.
    """
    found: dict[str, str] = {}
    for queue in sorted(queues, key=lambda queue: queue.name):
        for tenant in (*queue.namespaces, queue.name, queue.name.rpartition("/")[2]):
            found.setdefault(tenant, queue.name)
    return found


def entitlements(queues: Sequence[Queue], tenants: Sequence[str]) -> dict[str, float]:
    """What each tenant is entitled to, as weights: its queue's guarantee of GPUs, else the queue's weight.

    Equal weights if there are no queues. A tenant without a queue, or with a guarantee of 0, has the least weight.
    """
    named, by_name = queues_by_tenant(queues), {queue.name: queue for queue in queues}
    mine = {tenant: by_name[named[tenant]] for tenant in tenants if tenant in named}
    for part in ("guarantee", "weight"):
        given = {tenant: _gpus(getattr(queue, part)) for tenant, queue in mine.items()}
        if any(given.values()):
            return {tenant: max(given.get(tenant, 0.0), 1.0) for tenant in tenants}
    return dict.fromkeys(tenants, 1.0)


def _gpus(amounts: Mapping[str, int]) -> float:
    """The amount of GPUs, of all models or summed up over models."""
    if GPUS in amounts:
        return float(amounts[GPUS])
    return float(sum(amount for name, amount in amounts.items() if gpu_amount(name)[0] == GPUS))


def with_arithmetic(queues: Sequence[Queue], arithmetic: str) -> list[Queue]:
    """The same queues with another quota policy."""
    return [replace(queue, arithmetic=arithmetic) for queue in queues]
