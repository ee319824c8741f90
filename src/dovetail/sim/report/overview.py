"""The findings of all studies of a page together, in one sentence per mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.sim.report.headline import inflation_sentence, time_sentence
from dovetail.sim.report.words import SPACE, amount, decimals
from dovetail.sim.results import Inflation, Timed
from dovetail.sim.statistics import ALLOCATED_AT_END, IDLE_WHILE_WANTED, Difference, Measure, SeedVerdict, compare, mean
from dovetail.sim.study import R, Study


@dataclass(frozen=True, slots=True)
class Race:
    """The policy that is best on average over several traces, compared with the baseline."""

    policy: str
    baseline: str
    gaps: Sequence[Difference]  # per trace
    ahead: Sequence[int]  # traces on which it is clearly better, or better on the only seed
    behind: Sequence[int]

    @property
    def where(self) -> str:
        return (
            f"all {len(self.gaps)}" if len(self.ahead) == len(self.gaps) else f"{len(self.ahead)} of {len(self.gaps)}"
        )

    @property
    def reserve(self) -> str:
        """The restrictions that the headline must state."""
        worse = f"; worse on {len(self.behind)}" if self.behind else ""
        chance = " (one seed: it may be chance)" if any(g.verdict == SeedVerdict.ONE_SEED for g in self.gaps) else ""
        return worse + chance


def overall(inflations: Sequence[Study[Inflation]], times: Sequence[Study[Timed]]) -> list[str]:
    sentences = []
    if inflations:
        sentences.append(inflation_sentence(inflations[0]) if len(inflations) == 1 else _inflations(inflations))
    if times:
        sentences.append(time_sentence(times[0]) if len(times) == 1 else _times(times))
    return sentences


def _inflations(studies: Sequence[Study[Inflation]]) -> str:
    found = race(studies, ALLOCATED_AT_END)
    if found is None:
        return f"{len(studies)} traces, replayed until the cluster was full."
    if not found.ahead:
        return _never_ahead(found, "places clearly more GPU capacity")
    gained = [found.gaps[at].mean for at in found.ahead]
    most = max(gap.mean / 100 * study.gpus for study, gap in zip(studies, found.gaps, strict=True))
    low, high = decimals(min(gained), 1), decimals(max(gained), 1)
    span = f"{high}{SPACE}%" if low == high else f"{low} to {high}{SPACE}%"
    gpus = f"up to {decimals(most, 0 if most >= 10 else 1)} GPUs"
    compared = f"{found.policy} places more GPU capacity than {found.baseline} on {found.where} traces"
    return f"{compared}: {span}, {gpus}{found.reserve}."


def _times(studies: Sequence[Study[Timed]]) -> str:
    """The sentence for time mode. The hours are summed over all traces, also those on which the policy is worse."""
    found = race(studies, IDLE_WHILE_WANTED)
    if found is None:
        return f"{len(studies)} traces, replayed as they happened."
    saved = -sum(gap.mean for gap in found.gaps)
    if not found.ahead or saved <= 0:
        return _never_ahead(found, "leaves clearly fewer GPU-hours idle while jobs wait")
    hours = f"{found.policy} saves {amount(saved, '')} GPU-hours of idling while jobs wait against {found.baseline}"
    return f"{hours} over {len(studies)} traces, clearly on {found.where}{found.reserve}."


def _never_ahead(found: Race, claim: str) -> str:
    """The sentence for a policy that is not ahead overall.

    It is about this policy only: another one may be ahead on a single trace.
    """
    number = "none" if not found.ahead else str(len(found.ahead))
    traces = f"{number} of {len(found.gaps)} traces"
    return (
        f"{found.policy}, the best of the others on average, {claim} than {found.baseline} on {traces}{found.reserve}."
    )


def race(studies: Sequence[Study[R]], measure: Measure[R]) -> Race | None:
    """The best policy on average; None if the traces have no policy in common, or different baselines."""
    compared = [compare(study, measure).differences for study in studies]
    baseline = studies[0].baseline
    common = [policy for policy in studies[0].policies if all(policy in gaps for gaps in compared)]
    if not common or any(study.baseline != baseline for study in studies):
        return None
    policy = max(common, key=lambda name: mean([measure.better * gaps[name].mean for gaps in compared]))
    gaps = [found[policy] for found in compared]
    return Race(policy, baseline, gaps, *(_clearly(gaps, sign * measure.better) for sign in (1, -1)))


def _clearly(gaps: Sequence[Difference], sign: int) -> list[int]:
    """The traces on which the difference has this sign and is not explained by chance, as far as the seeds can tell."""
    sure = (SeedVerdict.BETTER, SeedVerdict.WORSE, SeedVerdict.ONE_SEED)
    return [at for at, gap in enumerate(gaps) if gap.verdict in sure and sign * gap.mean > 0]
