"""Options that `replay` and `compare` share. Imports nothing heavy: --help must be fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from dovetail.cli.errors import Refused
from dovetail.cli.options import color_option, engine_option, together
from dovetail.sim.workload import DEFAULT_CLUSTER, WorkloadParameters

if TYPE_CHECKING:
    from dovetail.sim.runs import Recipe, Setting

SIM_OUTPUTS = ("table", "json", "csv")
MODES = ("inflation", "time")
QUEUES = ("backfill", "strict")
SPEEDS = ("none", "sharing")
GENERATED = "generated"
MOST_SEEDS = 10_000
MOST_RESTART_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options other than traces, seeds and policies; None = not given."""

    jobs: int | None = None
    cluster: str | None = None
    ratio: float | None = None
    mode: str = MODES[0]
    queue: str | None = None
    compress: float | None = None
    learn: bool = False
    engine: str = "auto"
    skip_bad: bool = False
    speed: str | None = None
    restart_cost: float | None = None
    preemption: str | None = None
    queues: tuple[Path, ...] = ()
    quota: str | None = None

    def check(self, files: bool, generated: bool) -> None:
        """Raise Refused for options that would have no effect in this mode, and for values out of range."""
        if self.mode == "time":
            wrong = {"--ratio": self.ratio is not None}
            reason = "is for --mode inflation; in time mode jobs arrive when the trace says"
        else:
            wrong = {
                "--queue": self.queue is not None,
                "--compress": self.compress is not None,
                "--speed": self.speed is not None,
                "--restart-cost": self.restart_cost is not None,
                "--preemption": self.preemption is not None,
                "--queues": bool(self.queues),
                "--quota": self.quota is not None,
            }
            reason = "is for --mode time; add it"
        for option, given in wrong.items():
            if given:
                raise Refused(f"{option} {reason}")
        if files and not generated and (self.jobs is not None or self.cluster is not None):
            raise Refused("--jobs and --cluster are for generated jobs; leave them out, or leave the files out")
        if self.compress is not None and not 0 < self.compress <= 1e6:
            raise Refused(f"--compress {self.compress:g}: take a number above 0 and up to 1,000,000")
        if self.restart_cost is not None and not 0 <= self.restart_cost <= MOST_RESTART_SECONDS:
            raise Refused(f"--restart-cost {self.restart_cost:g}: take seconds from 0 to {MOST_RESTART_SECONDS:,}")

    def setting(self) -> Setting:
        from dovetail.sim.orders import RATIO
        from dovetail.sim.runs import Setting

        ratio = RATIO if self.ratio is None else self.ratio
        return Setting(
            self.mode,
            self.queue or QUEUES[0],
            not self.learn,
            ratio,
            self.engine,
            self.speed or SPEEDS[0],
            self.restart_cost or 0.0,
        )

    def recipe(self) -> Recipe:
        from dovetail.sim.clusters import parse_cluster
        from dovetail.sim.runs import Recipe

        workload = WorkloadParameters() if self.jobs is None else WorkloadParameters(jobs=self.jobs)
        cluster = DEFAULT_CLUSTER if self.cluster is None else self.cluster
        parse_cluster(cluster)
        return Recipe(workload, cluster, self.compress or 1.0)


def complete_policies(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completions for the last name of a list; after a slash, GPU policies."""
    from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

    before, comma, last = incomplete.rpartition(",")
    node, slash, device = last.partition("/")
    table = DEVICE_POLICIES if slash else NODE_POLICIES
    stem = f"{before}{comma}{node}/" if slash else f"{before}{comma}"
    begun = device if slash else last
    return [CompletionItem(stem + name, help=row.sentence) for name, row in table.items() if name.startswith(begun)]


def parse_seeds(text: str) -> list[int]:
    """The seeds of `42-51` or `1,2,5-7`."""
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise Refused(f"--seeds {text[:60]!r}: write whole numbers from 0, such as 42-51 or 1,2,5-7")
        low, high = int(first), int(last or first)
        if high < low or high - low >= MOST_SEEDS or high >= 2**32:
            raise Refused(f"--seeds {part.strip()[:60]!r}: from low to high, at most {MOST_SEEDS:,} seeds below 2³²")
        found.update(dict.fromkeys(range(low, high + 1)))
    return list(found)


def parse_policies(values: tuple[str, ...]) -> list[str]:
    """The policies of all lists.

    After NODE/GPU, a GPU policy that is not also a node policy continues the chain.
    """
    from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

    found: list[str] = []
    for value in values:
        first = len(found)
        for name in (part.strip() for part in value.split(",")):
            chained = len(found) > first and "/" in found[-1]
            if chained and name in DEVICE_POLICIES and name not in NODE_POLICIES:
                found[-1] += f",{name}"
            else:
                found.append(name)
    return list(dict.fromkeys(found))


def check_targets(plot: Path | None, report: Path | None) -> None:
    """Raise Refused if a file cannot be written; called before the work is done."""
    if plot is not None and plot.suffix.lower() not in (".svg", ".png"):
        raise Refused(f"--plot {plot}: the name must end in .svg or .png")
    for path in (plot, report):
        if path is not None and not path.absolute().parent.is_dir():
            raise Refused(f"{path}: there is no folder {path.absolute().parent}; make it first")
        if path is not None and path.is_dir():
            raise Refused(f"{path}: is a folder; name a file in it")


_FILE = click.Path(path_type=Path)
sim_options = together(
    click.option(
        "--jobs", type=int, metavar="N", help=f"How many jobs are generated.  [default: {WorkloadParameters().jobs:,}]"
    ),
    click.option(
        "--cluster",
        metavar="SPEC",
        help="Machines of generated jobs: COUNTxMODEL:GPUS@RACK, separated by commas.  [default: as `generate`]",
    ),
    click.option(
        "--ratio",
        type=float,
        metavar="X",
        help="Where orders are drawn: jobs ask for this many times the GPU capacity in the end.  [default: 1.3]",
    ),
    click.option(
        "--mode",
        type=click.Choice(MODES),
        default=MODES[0],
        show_default=True,
        help="inflation: pods come and stay until the cluster is full; time: jobs arrive, wait, run and leave.",
    ),
    click.option(
        "--queue",
        type=click.Choice(QUEUES),
        help="In time mode: may a job overtake one that waits?  [default: backfill]",
    ),
    click.option("--compress", type=float, metavar="FACTOR", help="In time mode: jobs arrive so many times as fast."),
    click.option(
        "--speed",
        type=click.Choice(SPEEDS),
        help="In time mode: what slows jobs down. sharing: other jobs on their GPUs.  [default: none]",
    ),
    click.option(
        "--restart-cost",
        type=float,
        metavar="SECONDS",
        help="In time mode: how long a job that is resumed or moved does no work.  [default: 0]",
    ),
    click.option(
        "--preemption",
        metavar="NAME|none",
        help="In time mode: by which policy running jobs are stopped for others. `compare` takes several, by commas."
        "  [default: none]",
    ),
    click.option(
        "--queues",
        multiple=True,
        type=_FILE,
        metavar="FILE|none",
        help="In time mode: ElasticQuotas or Queues as manifests, or a configuration with queues; each is for the"
        " tenant of its name. `compare` takes several.",
    ),
    click.option(
        "--quota",
        metavar="NAME",
        help="With --queues: the quota policy of all queues, instead of their own. `compare` takes several, by commas.",
    ),
    click.option("--learn", is_flag=True, help="Policies learn which pods are typical; else they are told."),
    engine_option,
    click.option("--skip-bad", is_flag=True, help="Leave out rows that are wrong, and say how many."),
    click.option(
        "-o",
        "--output",
        type=click.Choice(SIM_OUTPUTS),
        default=SIM_OUTPUTS[0],
        show_default=True,
        help="How to print: a table for people, json and csv for programs.",
    ),
    click.option("--plot", type=_FILE, metavar="FILE", help="Draw the curves: .svg, or .png with the extra `plot`."),
    click.option("--report", type=_FILE, metavar="FILE", help="Write the findings as one HTML page."),
    color_option,
)
