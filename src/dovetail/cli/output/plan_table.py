"""Prints `plan` for users: which pods land where, which wait and why, and the cluster before and after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

import click

from dovetail.cli.output import table
from dovetail.cli.output.amounts import amount_of, card_index, card_mib, change, count, percent
from dovetail.cli.output.folding import folded, names_of
from dovetail.cli.output.plan_json import summary
from dovetail.cli.planning import PlanReport, of_severity
from dovetail.engine.usage import NodeUse, own_cards, whole_cards_free
from dovetail.kube.objects.problems import Problem
from dovetail.model.decision import Share
from dovetail.model.node import CPU, MEMORY, Enforcer, Node
from dovetail.model.order import as_people_count
from dovetail.model.reason import name
from dovetail.policies.titles import policy_title
from dovetail.whatif.plan import PlannedPod, why_pending
from dovetail.whatif.preempting import Eviction

MOST_ROWS = 200  # of one table, unless wide
MANY_REPLICAS = 7  # up to this many replicas of one workload on one node are listed one by one
MOST_PROBLEMS = 20  # of one severity, unless wide


def lines(plan: PlanReport, wide: bool) -> Iterator[str]:
    """The plan as blocks of text, the most important first."""
    if plan.placed:
        yield _heading("PLACED", len(plan.placed))
        yield _capped(_placements(plan, wide), wide)
        yield ""
    if plan.pending:
        yield _heading("PENDING", len(plan.pending), "yellow")
        yield _capped(_pending(plan, wide), wide)
        yield ""
    if plan.evictions:
        yield _heading("EVICTED", len(plan.evictions), "yellow")
        yield _capped(evictions(plan.evictions, wide), wide)
        yield ""
    if plan.not_placed:
        yield _heading("NOT PLACED", len(plan.not_placed), "yellow")
        yield _capped(table.render(("NAMESPACE", "KIND", "NAME", "WHY"), _not_placed(plan)), wide)
        yield ""
    if plan.after:
        yield from _nodes(plan, wide)
        yield ""
    if wide and any(use.cards for use in plan.after):
        yield _cards(plan)
        yield ""
    yield closing(plan)


def closing(plan: PlanReport) -> str:
    """The last line: the whole plan in one sentence."""
    facts = summary(plan)
    free = facts["whole_gpus_free"]
    parts = [f"{count(facts['pods'], 'pod')}: {facts['placed']:,} placed, {facts['pending']:,} pending"]
    if plan.evictions:
        parts.append(f"evicted: {facts['evicted']:,}")
    parts.append(f"nodes used: {facts['nodes_used']:,}")
    parts.append(f"GPUs used: {facts['gpus_used']:,}")
    parts.append("whole GPUs free: " + change(f"{free['before']:,}", f"{free['after']:,}"))
    return " · ".join(parts)


def problem_lines(problems: Sequence[Problem], ignored: Mapping[str, int], wide: bool) -> Iterator[str]:
    """The problems of the input. They go to stderr, so that the plan itself can be piped."""
    for severity, colour in (("error", "red"), ("warning", "yellow")):
        said = of_severity(problems, severity)
        shown = said if wide else said[:MOST_PROBLEMS]
        for text in shown:
            yield f"{click.style(severity, fg=colour)}: {text}"
        if len(shown) < len(said):
            yield f"{severity}: and {len(said) - len(shown):,} more; -o wide shows all"
    told = [str(problem) for problem in problems if problem.severity == "note" and problem.tell]
    shown = told if wide else told[:MOST_PROBLEMS]
    yield from (f"note: {text}" for text in shown)
    notes = [str(problem) for problem in problems if problem.severity == "note" and not problem.tell]
    notes += told[len(shown) :]
    if ignored:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(ignored.items()))
        notes.append(f"ignored, as they do not matter for placing: {kinds}")
    if wide:
        yield from (f"note: {text}" for text in notes)
    elif notes:
        yield f"{count(len(notes), 'note')} on what was filled in or left out; -o wide shows them"


def gpu_cell(shares: Sequence[Share], node: Node, short: Mapping[str, str]) -> str:
    """The GPUs of a pod: `0,1`; `kubelet's choice` if they are not known yet; `-` if the pod asks for none."""
    if not shares:
        return "-"
    if node.enforcer == Enforcer.STOCK:
        return f"{len(shares)} × kubelet's choice"
    indexes = {device.uuid: device.index for device in node.devices}
    cards = sorted({share.uuid: indexes.get(share.uuid, -1) for share in shares}.items(), key=lambda card: card[1])
    if len(cards) == 1:
        return f"{cards[0][1]}  {short[cards[0][0]]}"
    return ",".join(str(index) for _, index in cards)


def short_uuids(uuids: Iterable[str], shown: Collection[str] | None = None) -> dict[str, str]:
    """uuid -> short form: `GPU-ef931851-ecba-…` becomes `GPU-ef931851`, or longer if that is not unique.

    `shown`: the uuids to shorten; None = all. In sorted order, a uuid shares most parts with its neighbours, so only
    these are compared.
    """
    ordered = sorted(set(uuids), key=lambda uuid: uuid.replace("-", "\0"))
    position = {uuid: n for n, uuid in enumerate(ordered)}
    short = {}
    for uuid in ordered if shown is None else shown:
        n, words = position[uuid], uuid.split("-")
        neighbours = (*ordered[max(n - 1, 0) : n], *ordered[n + 1 : n + 2])
        number = max([2, *(1 + _parts_in_common(words, other.split("-")) for other in neighbours)])
        short[uuid] = "-".join(words[:number]) if words[0] == "GPU" else uuid
    return short


def _parts_in_common(words: Sequence[str], others: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, others, strict=False)))


def _heading(title: str, number: int, colour: str | None = None) -> str:
    return click.style(f"{title} ({number:,})", bold=True, fg=colour)


def _placements(plan: PlanReport, wide: bool) -> str:
    nodes = plan.nodes
    shown = {share.uuid for outcome in plan.placed for share in outcome.decision.shares}
    short = short_uuids((card.device.uuid for use in plan.after for card in use.cards), shown)

    def cells(outcome: PlannedPod) -> tuple[str, str, str]:
        """Node, GPU memory, policies."""
        asked = outcome.decision.shares
        memory = card_mib(sum(share.memory_mib for share in asked)) if asked else "-"
        axes = policy_title(outcome.pod.profile) if asked else outcome.pod.profile.node
        return outcome.decision.node or "", memory, axes

    rows = []
    for group in _replicas(plan.placed, cells, MANY_REPLICAS, wide):
        where, memory, axes = cells(group[0])
        shares = [share for outcome in group for share in outcome.decision.shares]
        times = f"{len(group)} × " if len(group) > 1 and shares else ""
        gpus = gpu_cell(shares, nodes[where], short)
        names = names_of([outcome.pod.name for outcome in group])
        rows.append((group[0].pod.namespace, names, where, gpus, f"{times}{memory}", axes))
    return table.render(("NAMESPACE", "POD", "NODE", "GPU", "GPU MEMORY", "NODE × GPU POLICY"), rows, right=(4,))


def _replicas(
    outcomes: Sequence[PlannedPod], cells: Callable[[PlannedPod], Hashable], most: int, wide: bool
) -> Iterator[list[PlannedPod]]:
    """Groups of replicas of one workload with equal cells, if a group has more than `most` of them."""

    def key(outcome: PlannedPod) -> Hashable | None:
        pod = outcome.pod
        return (pod.namespace, pod.owner, cells(outcome)) if pod.owner and not wide else None

    for group in folded(outcomes, key):
        yield from [group] if len(group) > most else ([outcome] for outcome in group)


def _pending(plan: PlanReport, wide: bool) -> str:
    def cells(outcome: PlannedPod) -> tuple[str, str]:
        return name(outcome.reason), why_pending(outcome)

    rows = [
        (group[0].pod.namespace, names_of([outcome.pod.name for outcome in group]), *cells(group[0]))
        for group in _replicas(plan.pending, cells, 1, wide)
    ]
    return table.render(("NAMESPACE", "POD", "REASON", "WHY"), rows)


def evictions(stopped: Sequence[Eviction], wide: bool) -> str:
    """Running pods that would be stopped, and for which pod. Replicas with equal cells are one row."""

    def cells(one: Eviction) -> tuple[str, ...]:
        budget = "; no disruption budget allows it" if one.breaks_budget else ""
        return one.node, one.by.key, f"{one.reason}{budget}"

    def key(one: Eviction) -> Hashable | None:
        return (one.pod.namespace, one.pod.owner, cells(one)) if one.pod.owner and not wide else None

    rows = [
        (group[0].pod.namespace, names_of([one.pod.name for one in group]), *cells(group[0]))
        for group in folded(stopped, key)
    ]
    return table.render(("NAMESPACE", "POD", "NODE", "FOR", "WHY"), rows)


def _not_placed(plan: PlanReport) -> list[tuple[str, ...]]:
    return [(one.namespace, one.kind, one.name, f"makes pods: {one.why}") for one in plan.not_placed]


def _nodes(plan: PlanReport, wide: bool) -> Iterator[str]:
    """The table of nodes. Unless wide, nodes that look alike and did not change are one row."""
    pairs = sorted(zip(plan.before, plan.after, strict=True), key=lambda pair: as_people_count(pair[1].node.name))
    rows = [(_node_row(old, new), (old.pods, old.cards) != (new.pods, new.cards)) for old, new in pairs]
    groups = folded(rows, lambda row: None if wide or row[1] else row[0][1:])
    if not wide and len(groups) > MOST_ROWS:
        groups = [group for group in groups if group[0][1]][:MOST_ROWS]
    header = ("NODE", "PODS", "CPU", "MEMORY", "GPU MEMORY", "GPU COMPUTE", "WHOLE GPUS FREE")
    yield table.render(header, [(names_of([row[0][0] for row in group]), *group[0][0][1:]) for group in groups])
    left_out = len(pairs) - sum(len(group) for group in groups)
    if left_out:
        yield f"and {count(left_out, 'node')} more; -o wide shows all"


def _node_row(before: NodeUse, after: NodeUse) -> tuple[str, ...]:
    """The row of a node. Most nodes of a large cluster did not change: their use is read once."""
    node, now = after.node, _in_use(after)
    pods, cpu, memory, *gpus = map(change, now if before is after else _in_use(before), now)
    cells = [node.name, pods]
    for resource, used in ((CPU, cpu), (MEMORY, memory)):
        cells.append(f"{used} of {amount_of(resource, node.allocatable.get(resource, 0))}")
    if not after.cards:
        return (*cells, "-", "-", "-")
    return (*cells, *gpus[:2], f"{gpus[2]} of {len(own_cards(after))}")


def _in_use(use: NodeUse) -> tuple[str, ...]:
    """Pods, CPU, memory, percent of GPU memory and compute, and free whole GPUs."""
    amounts = [amount_of(resource, use.used.get(resource, 0)) for resource in (CPU, MEMORY)]
    return (str(use.pods), *amounts, *_gpu_percent(use), str(whole_cards_free((use,))))


def _gpu_percent(use: NodeUse) -> tuple[str, str]:
    """Percent of memory and of compute in use, over all cards that the node registers."""
    cards = own_cards(use)
    return (
        percent(sum(card.memory_used_mib for card in cards), sum(card.device.memory_mib for card in cards)),
        percent(sum(card.compute_used_milli for card in cards), sum(card.device.compute_milli for card in cards)),
    )


def _cards(plan: PlanReport) -> str:
    rows: list[Sequence[str]] = []
    pairs = zip(plan.before, plan.after, strict=True)
    for before, after in sorted(pairs, key=lambda pair: as_people_count(pair[1].node.name)):
        for old, new in zip(before.cards, after.cards, strict=True):
            device = new.device
            memory = change(f"{old.memory_used_mib:,}", f"{new.memory_used_mib:,}")
            compute = change(str(old.compute_used_milli // 10), str(new.compute_used_milli // 10))
            state = "" if device.healthy else "unhealthy "
            state += "cordoned " if device.cordoned else ""
            state += "quarantined " if device.quarantined else ""
            state += "(assumed) " if new.assumed else ""
            rows.append(
                (
                    after.node.name,
                    card_index(device),
                    device.uuid,
                    device.model,
                    f"{memory} of {card_mib(device.memory_mib)}",
                    f"{compute} of {device.compute_milli // 10} %",
                    f"{change(str(old.slots_used), str(new.slots_used))} of {device.slots}",
                    (state + " ".join(new.pods)) or "-",
                )
            )
    return table.render(("NODE", "GPU", "UUID", "MODEL", "MEMORY", "COMPUTE", "SLOTS", "PODS"), rows)


def _capped(text: str, wide: bool) -> str:
    rows = text.split("\n")
    if wide or len(rows) <= MOST_ROWS + 1:
        return text
    return "\n".join(rows[: MOST_ROWS + 1]) + f"\nand {len(rows) - MOST_ROWS - 1:,} more; -o wide shows all"
