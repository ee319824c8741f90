"""Formats the comparison of what happened with what another policy or scheduler would have done."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dovetail.cli.journals import written_time
from dovetail.cli.output import table
from dovetail.whatif.hypothesis import Moment
from dovetail.whatif.worlds import PodInBoth, WorldNumbers, WorldsReport

if TYPE_CHECKING:
    from dovetail.cli.shadowing import ShadowReport

Json = dict[str, Any]
PODS_SHOWN = 10
ASSUMPTIONS = (
    "Pods arrive when they did and run as long as they did; one that never got a node runs until it was deleted.",
    "A pod that still waits in the hypothesis when it ends in reality never runs in the hypothesis.",
    "A pod that is stopped for another one in the hypothesis does not come back.",
    "Binding, pulling images and starting take no time in the hypothesis.",
)


def document(report: WorldsReport | None, title: str, names: tuple[str, str] = ("recorded", "other")) -> Json:
    if report is None:
        return {"apiVersion": "dovetail.dev/v1", "kind": "JournalDifference", "other": title, "pods": 0}
    places = ("pods", "same_place", "other_gpus", "elsewhere")
    counts = (*places, "only_in_reality", "only_in_hypothesis", "earlier", "later")
    return {
        "apiVersion": "dovetail.dev/v1",
        "kind": "JournalDifference",
        "other": title,
        "begin": written_time(report.begin),
        "end": written_time(report.end),
        **{_camel(name): getattr(report, name) for name in counts},
        names[0]: _numbers(report.reality),
        names[1]: _numbers(report.hypothesis),
        "differing": [{_camel(key): value for key, value in asdict(one).items()} for one in report.differing],
        "series": [{"at": written_time(at), names[0]: _moment(a), names[1]: _moment(b)} for at, a, b in report.series],
        "assumptions": list(ASSUMPTIONS),
    }


def _numbers(numbers: WorldNumbers) -> Json:
    return {_camel(key): round(value, 4) for key, value in asdict(numbers).items()}


def _moment(moment: Moment) -> Json:
    return {_camel(key): value for key, value in moment._asdict().items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def lines(report: WorldsReport | None, title: str, names: tuple[str, str] = ("RECORDED", "OTHER")) -> list[str]:
    if report is None:
        return ["nothing was recorded that could be compared"]
    head = f"{written_time(report.begin)} to {written_time(report.end)}: {report.pods:,} pods; other: {title}"
    where = (
        f"{report.same_place:,} on the same GPUs, {report.other_gpus:,} on other GPUs of the same node, "
        f"{report.elsewhere:,} on another node"
    )
    late = (
        f"{report.only_in_reality:,} would have waited to the end, {report.only_in_hypothesis:,} never got a place and "
        f"would have; {report.earlier:,} earlier by 1 s or more, {report.later:,} later"
    )
    return [head, where, late, "", _table(report, names), "", *_pods(report, names), *_assumed()]


def _table(report: WorldsReport, names: tuple[str, str]) -> str:
    one, two = report.reality, report.hypothesis
    rows = [
        ("pods placed", f"{one.placed:,}", f"{two.placed:,}"),
        ("GPU-hours in use", f"{one.gpu_hours:,.2f}", f"{two.gpu_hours:,.2f}"),
        ("GPU-hours idle while pods waited", *(f"{each.idle_while_wanted_hours:,.2f}" for each in (one, two))),
        ("whole GPUs free, on average", f"{one.whole_free:,.1f}", f"{two.whole_free:,.1f}"),
        ("wait of GPU pods, mean", f"{one.wait_mean:,.1f} s", f"{two.wait_mean:,.1f} s"),
        ("wait of GPU pods, median", f"{one.wait_median:,.1f} s", f"{two.wait_median:,.1f} s"),
        ("wait of GPU pods, 95 %", f"{one.wait_p95:,.1f} s", f"{two.wait_p95:,.1f} s"),
        ("stopped for other pods", f"{one.stopped:,}", f"{two.stopped:,}"),
    ]
    return table.render(("", *names), rows, right=(1, 2))


def _pods(report: WorldsReport, names: tuple[str, str]) -> list[str]:
    if not report.differing:
        return []
    rows = [_row(pod) for pod in report.differing[:PODS_SHOWN]]
    shown = table.render(("POD", f"{names[0]} NODE", f"{names[1]} NODE", "WAITED", "WOULD WAIT"), rows, right=(3, 4))
    left = len(report.differing) - len(rows)
    return [shown, *([f"and {left:,} more: -o json"] if left else []), ""]


def _row(pod: PodInBoth) -> tuple[str, ...]:
    nodes = (pod.real_node or "none", pod.other_node or "none")
    return (pod.pod, *nodes, f"{pod.real_wait:,.1f} s", f"{pod.other_wait:,.1f} s")


def _assumed() -> list[str]:
    return [f"assumed: {text}" for text in ASSUMPTIONS]


# ---- the shadow -----------------------------------------------------------------------------------------------------

OTHER_SCHEDULER = ("OTHER SCHEDULER", "DOVETAIL")


def shadow_document(found: ShadowReport) -> Json:
    worlds = document(found.worlds, "dovetail", ("otherScheduler", "dovetail"))
    tried = {"offered": found.offered, "placeAtOnce": found.at_once, "placeLater": found.later}
    return {**worlds, "kind": "ShadowReport", "onTheClusterAsItWas": tried}


def shadow_lines(found: ShadowReport) -> list[str]:
    tried = (
        f"{found.offered:,} pods were tried on the cluster as the other scheduler left it: {found.at_once:,} had a "
        f"place when they arrived, {found.later:,} later, "
        f"{found.offered - found.at_once - found.later:,} never while they waited"
    )
    return [tried, "had Dovetail placed all of them:", *lines(found.worlds, "dovetail", OTHER_SCHEDULER)]
