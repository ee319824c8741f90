"""Our replays are the published ones: a part of `make repro`, small enough for every day."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.sim.published import COLUMNS, POLICY_OF_PUBLISHED, PublishedCurves, experiments
from dovetail.sim.repro import FGD, RANDOM, Gap, ReproFindings, gap, reproduce, verdict
from dovetail.sim.trace import TraceError
from tests.sim.results_builder import inflation
from tests.sim.small_runs import quiet


@pytest.mark.slow
def test_two_seeds_of_a_trace_are_as_published(openb: Path) -> None:
    """The four exact policies in every column; fgd nearly so. Two seeds say too little of random."""
    one = next(found for found in experiments(openb)[0] if found.trace.name == "default")
    found = reproduce([one], quiet, seeds=one.seeds[:2], workers=1, snug=False)
    assert len(found.gaps) == 2 * len(POLICY_OF_PUBLISHED)
    for each in found.gaps:
        if each.policy == FGD:
            assert each.allocated <= 0.3
        elif each.policy != RANDOM:
            assert each.identical, each


def test_experiments_are_found_by_their_files(openb: Path) -> None:
    found, lacking = experiments(openb)
    assert lacking == []
    assert {one.trace.name for one in found} >= {"default"}
    for one in found:
        assert len(one.curves) == len(POLICY_OF_PUBLISHED) * len(one.seeds)


def test_a_folder_without_data_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"openb_node_list_gpu_node.csv: is missing; say where the data is"):
        experiments(tmp_path)


RUN = inflation("best-fit")
PUBLISHED = PublishedCurves(
    tuple(round(RUN.columns[str(c)].allocated_pct, 2) for c in COLUMNS),
    tuple(round(RUN.columns[str(c)].frag_pct, 2) for c in COLUMNS),
)


def test_rounding_is_no_difference() -> None:
    assert gap(RUN, PUBLISHED).identical


def test_one_column_that_is_off_is_seen() -> None:
    allocated = list(PUBLISHED.allocated)
    allocated[77] += 0.02
    found = gap(RUN, PublishedCurves(tuple(allocated), PUBLISHED.fragmented))
    assert not found.identical
    assert found.allocated == pytest.approx(0.02, abs=0.0051)


def test_a_run_that_ends_early_is_not_identical() -> None:
    assert gap(inflation("best-fit", last=128), PUBLISHED).allocated == 100.0


def near(policy: str, allocated: float, end: float = 0.0) -> Gap:
    return Gap("default", policy, 42, allocated, 0.0, end, end)


@pytest.mark.parametrize(
    ("gaps", "passes"),
    [
        ([near("best-fit", 0.0), near("fgd", 0.3), near("random", 9.0, 0.3)], True),
        ([near("best-fit", 0.011)], False),
        ([near("fgd", 0.31)], False),
        ([near("fgd", 0.1, 0.021)], False),
        ([near("random", 9.0, 0.31)], False),
        ([], False),
    ],
)
def test_what_must_hold(gaps: list[Gap], passes: bool) -> None:
    assert verdict(ReproFindings(gaps, {}, {}))["pass"] is passes


def test_snug_is_held_against_fgd_under_the_same_order() -> None:
    fgd = {("openb", seed): inflation("fgd", seed) for seed in (1, 2)}
    snug = {("openb", seed): inflation("snug", seed) for seed in (1, 2)}
    found = verdict(ReproFindings([near("best-fit", 0.0)], fgd, {"told": snug}))["snug"]["told"]["at_130"]
    expected = [snug[key].columns["130"].allocated_pct - fgd[key].columns["130"].allocated_pct for key in fgd]
    assert found["mean"] == found["median"] == found["traces"]["openb"] == pytest.approx(sum(expected) / 2, abs=1e-4)
    assert (found["wins"], found["runs"]) == (sum(gain > 0 for gain in expected), 2)
