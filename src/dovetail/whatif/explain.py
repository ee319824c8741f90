"""Why one pod gets its node, or why it waits and what would help: the engine's answer for the whole situation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dovetail.engine.scheduler import Scheduler
from dovetail.engine.why.explain import Explanation
from dovetail.engine.why.explain import explain as explain_decision
from dovetail.engine.why.gathering import Gathering, by_rules, gathered, incomplete, is_gang, waiting
from dovetail.engine.why.refused import only_device_quota, refused_by
from dovetail.engine.why.suggest import Suggestion, alternatives, fewer_members
from dovetail.model.decision import Decision
from dovetail.model.events import PodsGone, Warn
from dovetail.model.node import Node
from dovetail.model.pod import Group, Pod, RunningPod
from dovetail.model.reason import Reason
from dovetail.whatif.preempting import Eviction, decide_all
from dovetail.whatif.situation import EngineOptions, Situation, start
from dovetail.whatif.ways import Owed, Way, matter, owed, ways

Means = Callable[[Pod], bool]


@dataclass(frozen=True, slots=True)
class ExplainedPod:
    """The explanation of one pod. If the pod runs already, only `pod`, `node` and `running` are set."""

    pod: Pod
    node: Node | None  # the node that it gets, or runs on
    decision: Decision | None = None
    explanation: Explanation | None = None
    suggestions: tuple[Suggestion, ...] = ()  # cheapest for the user first
    running: RunningPod | None = None
    why: str = ""  # what is wrong with the pod or its group
    evictions: tuple[Eviction, ...] = ()  # running pods that are stopped for its group
    owed: Owed | None = None  # of a waiting pod: what its queue is owed; None = it has no queue
    gathering: Gathering | None = None  # of a member of a gang that waits as a whole
    ways: tuple[Way, ...] = ()  # of a waiting pod, where rights matter: how it could get a place, and at what cost


def explain(
    situation: Situation, options: EngineOptions, means: Means, check: Callable[[list[Pod]], None] = lambda pods: None
) -> tuple[ExplainedPod | None, tuple[Warn, ...]]:
    """The first pod for which `means` is true, pending pods before placed ones; None = there is none.

    Plans everything once. For a placed pod, the situation just before its placement is built again. `check` gets all
    pods for which `means` is true, and may raise.
    """
    scheduler, warnings = start(situation, options)
    decided = decide_all(scheduler, situation.groups, options.now)
    decisions = iter(decided.decisions)
    placed = [(group, pod, next(decisions)) for group in situation.groups for pod in group.pods]
    meant = [row for row in placed if means(row[1])]
    running = [held for held in situation.running if means(held.pod)]
    check([row[1] for row in meant] + [held.pod for held in running])
    nodes = {node.name: node for node in situation.nodes}
    if not meant:
        return _not_to_be_placed(situation, running, nodes, means), warnings
    group, pod, decision = next((row for row in meant if not row[2].placed), meant[0])
    if decision.placed:
        mine = [one for one in decided.evictions if one.group == group.name]
        return _placed(situation, options, nodes, (group, pod, decision), mine), warnings
    answer = of_waiting(scheduler, group, pod, decision)
    if answer.explanation is None or not matter(situation):
        return answer, warnings
    late = waiting(scheduler, group)
    tried = ways(situation, options, scheduler, late, pod)
    return replace(answer, owed=owed(situation, scheduler, pod), ways=tried), warnings


def _not_to_be_placed(
    situation: Situation, running: list[RunningPod], nodes: dict[str, Node], means: Means
) -> ExplainedPod | None:
    """The answer for a pod that runs already, or that names a node which does not exist."""
    if running:
        return ExplainedPod(running[0].pod, nodes.get(running[0].node), running=running[0])
    stray = next((held for held in situation.strays if means(held.pod)), None)
    if stray is None:
        return None
    decision = Decision(stray.pod.uid, None, (), Reason.NODE_NAME, 0)
    why = f"spec.nodeName is {stray.node}, and node {stray.node} does not exist in the input; add it with -f"
    return ExplainedPod(stray.pod, None, decision, why=why)


def of_waiting(scheduler: Scheduler, group: Group, pod: Pod, decision: Decision) -> ExplainedPod:
    """Explain with everything else placed. Nodes are not checked if no node can help."""
    if pod.refusal is not None:
        return ExplainedPod(pod, None, decision, why=pod.refusal.message)
    if decision.reason == Reason.GROUP_INCOMPLETE:
        fewer = tuple(fewer_members(scheduler, group, pod))
        return ExplainedPod(pod, None, decision, suggestions=fewer, why=incomplete(group))
    late = waiting(scheduler, group)
    if not is_gang(late, decision.reason):
        why = refused_by(scheduler, pod, decision.reason) or only_device_quota(scheduler, pod)
        with by_rules(scheduler, late, pod):
            explanation = explain_decision(scheduler, pod, decision)
        return ExplainedPod(pod, None, decision, explanation, alternatives(scheduler, late, pod), why=why)
    with gathered(scheduler, late) as gathering:
        asked = gathering.left_out or pod
        explanation = explain_decision(scheduler, asked, decision)
        which = refused_by(scheduler, asked, scheduler.reason(late, asked)) or only_device_quota(scheduler, asked)
        why = f"{gathering.sentence}; the next finds {which}".rstrip()
    changes = alternatives(scheduler, late, asked)
    return ExplainedPod(pod, None, decision, explanation, changes, why=why, gathering=gathering)


def _placed(
    situation: Situation,
    options: EngineOptions,
    nodes: dict[str, Node],
    found: tuple[Group, Pod, Decision],
    evictions: Sequence[Eviction],
) -> ExplainedPod:
    """Explain a placed pod: place again the groups before its own, and the members before it.

    `evictions`: running pods that are stopped for its group. They are gone when it is placed.
    """
    group, pod, decision = found
    scheduler, _ = start(situation, options)
    earlier = situation.groups[: situation.groups.index(group)]
    members = group.pods[: group.pods.index(pod)]
    if not scheduler.claims.plain:
        decide_all(scheduler, earlier, options.now)
        earlier = ()
        scheduler.handle(PodsGone(options.now, tuple(one.pod.uid for one in evictions)))
    scheduler.place([*earlier, *(Group(member.key, (member,)) for member in members)])
    explanation = explain_decision(scheduler, pod, decision)
    return ExplainedPod(pod, nodes[decision.node or ""], decision, explanation, evictions=tuple(evictions))
