"""`dovetail demo`: the four strategies, node × GPU, on a cluster of two nodes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions, color_option, engine_option, output_option
from dovetail.cli.output.progress import progress
from dovetail.cli.output.terminal import echo, echo_styled

if TYPE_CHECKING:
    from dovetail.cli.planning import PlanReport


@dataclass(frozen=True, slots=True)
class Scenario:
    letter: str
    node: str
    gpu: str
    when: str
    buys: str
    costs: str

    @property
    def file(self) -> str:
        return f"demo-{self.letter.lower()}.yaml"


SCENARIOS = (
    Scenario(
        "A",
        "binpack",
        "binpack",
        "many small inference or batch jobs",
        "fewest nodes, and whole GPUs stay free for training",
        "pods on one GPU compete, a risk for p99",
    ),
    Scenario(
        "B",
        "spread",
        "binpack",
        "replicas over nodes or zones",
        "availability, and whole GPUs stay free",
        "harder to scale the cluster in",
    ),
    Scenario(
        "C",
        "binpack",
        "spread",
        "online inference",
        "consolidated nodes, little contention per GPU",
        "uses more GPUs than A",
    ),
    Scenario(
        "D",
        "spread",
        "spread",
        "strict p99: search, ads, chat",
        "least interference",
        "the dearest, and most fragmentation",
    ),
)


@click.command(short_help="The four strategies on a two-node cluster.")
@click.argument("scenario", required=False, type=click.Choice([s.letter for s in SCENARIOS], case_sensitive=False))
@engine_option
@output_option
@color_option
def demo(scenario: str | None, engine: str, output: str) -> None:
    """Place one Deployment of four replicas by the four strategies, node × GPU, on two nodes with four GPUs each.

    Every replica asks for 7,500 MiB of a GPU: two fit on a T4, three on an A10G. The manifests are in examples/demo.

    \b
    Examples:
      dovetail demo
      dovetail demo C
      dovetail demo -o json
    """
    from dovetail.cli.output import encoding, plan_json

    wanted = [s for s in SCENARIOS if scenario is None or s.letter == scenario.upper()]
    plans = [(s, _plan(s, engine)) for s in wanted]
    if output in encoding.FORMATS:
        found = [_document(s, plan_json.document(plan)) for s, plan in plans]
        echo(encoding.encode({"scenarios": found}, output))
        return
    echo_styled("\n\n".join(_text(s, plan, output == "wide") for s, plan in plans))


def folder() -> Path:
    """The folder of the demo's manifests: in the installed package, or beside the sources."""
    package = Path(__file__).parent.parent.parent
    for candidate in (package / "examples" / "demo", package.parent.parent / "examples" / "demo"):
        if (candidate / "cluster.yaml").is_file():
            return candidate
    raise Refused("the demo's manifests are missing from this installation; install dovetail again")


def _plan(scenario: Scenario, engine: str) -> PlanReport:
    from dovetail.cli import planning

    files = (str(folder() / "cluster.yaml"), str(folder() / scenario.file))
    case = planning.read(ClusterOptions(filenames=files, engine=engine))
    with progress(planning.activity(case)):
        return planning.plan(case)


def _document(scenario: Scenario, plan: dict[str, Any]) -> dict[str, Any]:
    return {
        "scenario": scenario.letter,
        "policy": {"node": scenario.node, "gpu": scenario.gpu},
        "when": scenario.when,
        "buys": scenario.buys,
        "costs": scenario.costs,
        "plan": plan,
    }


def _text(scenario: Scenario, plan: PlanReport, wide: bool) -> str:
    from dovetail.cli.output import picture, plan_table, table
    from dovetail.cli.output.plan_json import summary
    from dovetail.engine.usage import own_cards

    title = f"{scenario.letter}  node {scenario.node} × GPU {scenario.gpu}: {scenario.when}"
    nodes = plan.nodes
    rows = [(o.pod.name, o.decision.node or "", _gpu(o.decision.shares, wide)) for o in plan.placed]
    holders: dict[str, list[tuple[str, int]]] = {}
    for outcome in plan.placed:
        for share in outcome.decision.shares:
            holders.setdefault(share.uuid, []).append((outcome.pod.name, share.memory_mib))
    facts = summary(plan)
    total = sum(len(own_cards(use)) for use in plan.after)
    lines = [
        click.style(title, bold=True),
        f"   Buys: {scenario.buys}. Costs: {scenario.costs}.",
        "",
        table.render(("POD", "NODE", "GPU"), rows, indent="   "),
        "",
        *("   " + line for line in picture.draw(plan.after, holders, picture.ink_for(sys.stdout.encoding))),
        "",
        f"   nodes used: {facts['nodes_used']} of {len(nodes)} · GPUs used: {facts['gpus_used']} of {total}"
        f" · whole GPUs free: {facts['whole_gpus_free']['after']}",
    ]
    if plan.pending:
        lines += ["", *plan_table.lines(plan, wide)]
    return "\n".join(lines)


def _gpu(shares: tuple[Any, ...], wide: bool) -> str:
    return ", ".join(share.uuid for share in shares)
