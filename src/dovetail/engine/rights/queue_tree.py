"""The tree of queues, with what the pods of each queue hold and ask for. Counting is done in queues.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dovetail.model.pod import Pod
from dovetail.model.rights import Queue
from dovetail.policies.quota import kai
from dovetail.policies.quota.kai import MILLI
from dovetail.policies.quota.shapes import Claimant, QuotaPolicy
from dovetail.policies.quota.table import QUOTA_POLICIES

BETWEEN_FAMILIES = kai.POLICY.name  # divides a level between queues of different arithmetics


@dataclass(slots=True, eq=False)
class Branch:
    """A queue in the tree. Amounts include the queues below it."""

    queue: Queue
    parent: Branch | None = None  # None: this is the root
    children: list[Branch] = field(default_factory=list)  # by name
    rank: int = 0  # its place among its siblings
    path: tuple[Branch, ...] = ()  # this queue, then the queues above it, without the root
    policy: QuotaPolicy | None = None  # divides what the queue has among its children
    dynamic: bool = False  # what the children deserve depends on what is used and asked for
    guarantee: dict[str, int] = field(default_factory=dict)  # its own, or the sum of its children's
    used: Counter[str] = field(default_factory=Counter)
    own: Counter[str] = field(default_factory=Counter)  # without the queues below
    ending: Counter[str] = field(default_factory=Counter)  # by pods that are being stopped or deleted
    waits: Counter[str] = field(default_factory=Counter)  # asked for by waiting pods
    history: dict[str, float] = field(default_factory=dict)  # part of the total: average use in the past
    keepers: dict[str, list[Branch]] = field(default_factory=dict)  # resource -> children that do not lend all
    sums: Counter[str] = field(default_factory=Counter)  # of the guarantees of its children
    known: dict[str, Claimant] = field(default_factory=dict)  # resource -> `claimant`, until a count changes
    named: set[str] = field(default_factory=set)  # the resources of which its children say something

    def names(self, resource: str) -> bool:
        """Whether the queue says something about the resource."""
        queue = self.queue
        return resource in self.guarantee or resource in queue.ceiling or resource in queue.weight

    def stays(self, resource: str) -> int:
        """What the queue will still use when its pods that are ending have ended."""
        return self.used[resource] - self.ending[resource]

    def wanted(self, resource: str, line: Sequence[Branch] = (), extra: int = 0) -> int:
        """Used, and asked for by waiting pods; of each queue below, at most its ceiling.

        `extra`: what a pod of the first queue of `line` asks for, if the pod does not wait yet.
        """
        if not self.children:
            return self.used[resource] + self.waits[resource] + (extra if self in line else 0)
        own = self.own[resource] + self.waits[resource] - sum(child.waits[resource] for child in self.children)
        if line and line[0] is self:
            own += extra
        for child in self.children:
            wanted, ceiling = child.wanted(resource, line, extra), child.queue.ceiling.get(resource)
            own += wanted if ceiling is None else min(wanted, ceiling)
        return own

    def claimant(self, resource: str, line: Sequence[Branch] = (), extra: int = 0) -> Claimant:
        """The queue for its arithmetic. `line` and `extra`: see `wanted`."""
        asks = bool(extra) and self in line
        if not asks and resource in self.known:
            return self.known[resource]
        queue = self.queue
        found = Claimant(
            queue.name,
            self.guarantee.get(resource, 0),
            queue.ceiling.get(resource),
            queue.weight.get(resource),
            queue.reserved.get(resource, 0),
            queue.lends,
            queue.priority,
            queue.created,
            self.used[resource],
            self.wanted(resource, line, extra),
            round(MILLI * self.history.get(resource, 0.0)),
        )
        if not asks:
            self.known[resource] = found
        return found

    def kept(self, resource: str) -> int:
        """How much of its guarantee the queue does not lend."""
        reserved, guarantee = self.queue.reserved.get(resource, 0), self.guarantee.get(resource, 0)
        return reserved if self.queue.lends else guarantee


class Tree:
    """The queues by name. A queue whose parent does not exist, or is below it, is a child of the root."""

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        self.by_name = {queue.name: Branch(queue) for queue in sorted(queues, key=lambda queue: queue.name)}
        self.root = Branch(Queue("", ""))
        self._of_namespace: dict[str, Branch] = {}
        for branch in self.by_name.values():
            branch.parent = self._parent_of(branch)
            branch.parent.children.append(branch)
            for namespace in branch.queue.namespaces:
                self._of_namespace.setdefault(namespace, branch)  # the first by name
        self._finish(self.root, ())

    @property
    def branches(self) -> list[Branch]:
        """All queues, and the branches between families of queues."""
        found, rest = [], [*self.root.children]
        while rest:
            branch = rest.pop()
            found.append(branch)
            rest += branch.children
        return found

    def of(self, pod: Pod) -> Branch | None:
        """The pod's queue: the one that it names, else that of its namespace; None = it has none."""
        return self.by_name.get(pod.queue) or self._of_namespace.get(pod.namespace)

    def resources(self) -> set[str]:
        """All resources that queues name."""
        queues = [branch.queue for branch in self.by_name.values()]
        maps = (part for queue in queues for part in (queue.guarantee, queue.ceiling, queue.weight, queue.reserved))
        return {resource for part in maps for resource in part}

    def _parent_of(self, branch: Branch) -> Branch:
        seen, name = {branch.queue.name}, branch.queue.parent
        while name in self.by_name and name not in seen:
            seen.add(name)
            name = self.by_name[name].queue.parent
        is_cycle = name in seen
        return self.root if is_cycle else self.by_name.get(branch.queue.parent, self.root)

    def _finish(self, branch: Branch, above: tuple[Branch, ...]) -> None:
        """Fill in what follows from the shape of the tree."""
        branch.path = above if branch is self.root else (branch, *above)
        _separate(branch)
        if branch.children:
            branch.policy = QUOTA_POLICIES[branch.children[0].queue.arithmetic]
            inherited = branch.parent.dynamic if branch.parent is not None else False
            branch.dynamic = branch.policy.reads_wanted or inherited
        for rank, child in enumerate(branch.children):
            child.rank = rank
            self._finish(child, branch.path)
            branch.sums.update(child.guarantee)
            branch.named.update(child.guarantee, child.queue.ceiling, child.queue.weight)
        branch.guarantee = {**branch.sums, **branch.queue.guarantee}
        for resource, amount in branch.queue.reserved.items():
            branch.guarantee[resource] = max(amount, branch.guarantee.get(resource, 0))
        for child in branch.children:
            for resource in child.guarantee:
                if child.kept(resource):
                    branch.keepers.setdefault(resource, []).append(child)


def _separate(parent: Branch) -> None:
    """Put the children of each arithmetic below a branch of their own, if there are several arithmetics.

    Two projects may have queues in one cluster. Their guarantees come first; the rest is divided evenly by wish.
    """
    kinds = sorted({child.queue.arithmetic for child in parent.children})
    if len(kinds) < 2:
        return
    children, parent.children = parent.children, []
    for kind in kinds:
        family = Branch(Queue(f"({kind})", BETWEEN_FAMILIES), parent)
        family.children = [child for child in children if child.queue.arithmetic == kind]
        for child in family.children:
            child.parent = family
        parent.children.append(family)


def above(branch: Branch) -> Branch:
    """The parent of a queue, which every queue has."""
    assert branch.parent is not None
    return branch.parent


def policy_of(branch: Branch) -> QuotaPolicy:
    """The arithmetic of the queue and its siblings."""
    policy = above(branch).policy
    assert policy is not None
    return policy


def apart(one: Branch, other: Branch) -> tuple[Branch, Branch] | None:
    """The two siblings above, or equal to, the two queues; None if one of the queues is above the other."""
    mine, theirs = one.path[::-1], other.path[::-1]
    return next(((x, y) for x, y in zip(mine, theirs, strict=False) if x is not y), None)
