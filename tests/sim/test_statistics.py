"""Policies against a baseline, seed by seed."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.sim.curves import MOMENTS, averages, gained_by_arrived, parting_point
from dovetail.sim.curves import allocated_by_arrived as placed
from dovetail.sim.results import Sample
from dovetail.sim.statistics import (
    ALLOCATED_AT_END,
    FAILED,
    GPUS_FREE,
    IDLE_WHILE_WANTED,
    INFLATION_MEASURES,
    TIME_MEASURES,
    Better,
    SeedVerdict,
    compare,
    difference,
    idle_bound,
    margin_of,
    spread,
    student_t,
    utilisation_pct,
)
from dovetail.sim.study import inflation_studies, time_studies
from tests.sim.results_builder import SMALL, inflation, inflations, timed, timeds

# Two-sided quantiles as printed in tables of Student's distribution.
TABLE = {
    (1, 0.95): 12.7062,
    (2, 0.95): 4.3027,
    (3, 0.95): 3.1824,
    (4, 0.95): 2.7764,
    (9, 0.95): 2.2622,
    (10, 0.95): 2.2281,
    (29, 0.95): 2.0452,
    (120, 0.95): 1.9799,
    (1, 0.90): 6.3138,
    (5, 0.99): 4.0321,
    (30, 0.99): 2.7500,
}


@pytest.mark.parametrize(("case", "quantile"), TABLE.items(), ids=str)
def test_quantiles_are_those_of_the_tables(case: tuple[int, float], quantile: float) -> None:
    assert student_t(*case) == pytest.approx(quantile, abs=5e-5)


def test_many_seeds_approach_the_normal_distribution() -> None:
    assert student_t(100_000) == pytest.approx(1.95996, abs=1e-4)


@given(st.integers(1, 200))
def test_more_seeds_make_a_smaller_quantile(freedom: int) -> None:
    assert student_t(freedom) > student_t(freedom + 1) > 1.95


def test_the_interval_of_a_textbook_sample() -> None:
    # 1, 2, 3, 4, 5: deviation √2.5, t(4) = 2.7764, margin 2.7764 · √2.5 / √5 = 1.9632
    assert margin_of([1, 2, 3, 4, 5]) == pytest.approx(1.9632, abs=5e-5)


def test_one_seed_has_no_interval_and_no_deviation() -> None:
    gap = difference({7: 95.0}, {7: 94.0}, Better.MORE)
    assert (gap.mean, gap.margin, gap.verdict) == (1.0, None, SeedVerdict.ONE_SEED)
    assert spread({7: 95.0}).deviation is None


def test_what_the_seeds_have_in_common_drops_out() -> None:
    base = {1: 90.0, 2: 94.0, 3: 98.0}  # seeds are far apart
    better = {seed: value + 0.5 + seed / 100 for seed, value in base.items()}  # 0.51, 0.52, 0.53 more
    gap = difference(better, base, Better.MORE)
    assert gap.mean == pytest.approx(0.52)
    assert gap.margin == pytest.approx(4.3027 * 0.01 / math.sqrt(3), rel=1e-4)
    assert (gap.wins, gap.ties, gap.losses, gap.verdict) == (3, 0, 0, SeedVerdict.BETTER)


@pytest.mark.parametrize(
    ("gains", "better", "record", "verdict"),
    [
        ([1.0, 1.1, 0.9], Better.MORE, (3, 0, 0), SeedVerdict.BETTER),
        ([1.0, 1.1, 0.9], Better.LESS, (0, 0, 3), SeedVerdict.WORSE),
        ([1.0, 1.1, 0.9], Better.NEITHER, (0, 0, 0), SeedVerdict.DIFFERENT),
        ([2.0, 2.0, 2.0], Better.MORE, (3, 0, 0), SeedVerdict.BETTER),  # no scatter at all
        ([1.0, -1.0, 0.5], Better.MORE, (2, 0, 1), SeedVerdict.UNCLEAR),
        ([0.0, 1e-12, 0.0], Better.MORE, (0, 3, 0), SeedVerdict.EQUAL),  # rounding is no difference
        ([0.0, 1.0, -1.0], Better.LESS, (1, 1, 1), SeedVerdict.UNCLEAR),
    ],
)
def test_wins_ties_losses_and_the_verdict(
    gains: list[float], better: Better, record: tuple[int, int, int], verdict: SeedVerdict
) -> None:
    policy, base = dict(enumerate(gains)), dict.fromkeys(range(len(gains)), 0.0)
    gap = difference(policy, base, better)
    assert ((gap.wins, gap.ties, gap.losses), gap.verdict) == (record, verdict)


def test_only_seeds_that_both_ran_are_compared() -> None:
    gap = difference({1: 5.0, 2: 6.0, 3: 100.0}, {2: 4.0, 1: 3.0, 9: 0.0}, Better.MORE)
    assert gap.by_seed == {1: 2.0, 2: 2.0}


values = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(st.tuples(values, values), min_size=1, max_size=12))
def test_swapping_policy_and_baseline_mirrors_the_difference(pairs: list[tuple[float, float]]) -> None:
    one, other = (dict(enumerate(column)) for column in zip(*pairs, strict=True))
    there, back = difference(one, other, Better.MORE), difference(other, one, Better.MORE)
    assert there.mean == pytest.approx(-back.mean)
    assert there.margin == pytest.approx(back.margin)
    assert (there.wins, there.ties, there.losses) == (back.losses, back.ties, back.wins)


def test_measures_of_inflation() -> None:
    run = inflation(models=SMALL)
    found = {measure.key: measure.of(run) for measure in INFLATION_MEASURES}
    assert found == {
        "allocated_100": run.columns["100"].allocated_pct,
        "allocated_end": run.columns["130"].allocated_pct,
        "frag_end": run.columns["130"].frag_pct,
        "frag_ratio_end": run.columns["130"].frag_ratio_pct,
        "failed": run.failed,
        "gpus_free": run.gpus_free,
        "nodes_free": run.nodes_free,
    }


def test_a_run_that_ended_early_lacks_the_column_but_has_an_end() -> None:
    run = inflation(models=SMALL, last=60)
    found = {measure.key: measure.of(run) for measure in INFLATION_MEASURES}
    assert found["allocated_100"] is None
    assert found["allocated_end"] == run.columns["60"].allocated_pct
    (study,) = inflation_studies([run])
    assert not compare(study, INFLATION_MEASURES[0]).spreads


def test_measures_of_time() -> None:
    run = timed()
    found = {measure.key: measure.of(run) for measure in TIME_MEASURES}
    assert found == {
        "idle_while_wanted": run.hours_idle_while_wanted,
        "utilisation": utilisation_pct(run),
        "delay_mean": run.delays.mean,
        "delay_p95": run.delays.p95,
        "completion_mean": run.delays.completion_mean,
        "makespan": run.makespan,
        "frag_busiest": run.frag_pct,
        "frag_ratio_busiest": run.frag_ratio_pct,
        "gpus_free_busiest": run.gpus_free,
        "nodes_free_busiest": run.nodes_free,
    }
    assert utilisation_pct(run) == pytest.approx(100 * run.hours_allocated / run.hours_capacity)


def test_a_study_per_trace_against_the_first_policy_or_the_named_one() -> None:
    results = inflations(["best-fit", "snug"], range(1, 6), "a", "b", models=SMALL)
    assert [(study.trace, study.baseline) for study in inflation_studies(results)] == [
        ("a", "best-fit"),
        ("b", "best-fit"),
    ]
    assert inflation_studies(results, "snug")[0].baseline == "snug"
    (study,) = inflation_studies(results[:10])
    compared = compare(study, ALLOCATED_AT_END)
    assert list(compared.spreads) == ["best-fit", "snug"]
    assert compared.differences["snug"].verdict == SeedVerdict.BETTER
    assert compare(study, FAILED).differences["snug"].mean < 0
    assert compare(study, GPUS_FREE).differences["snug"].wins == 0  # neither is better
    assert (study.gpus, study.nodes, study.seeds) == (44, 10, [1, 2, 3, 4, 5])


def test_two_results_for_the_same_seed_are_refused() -> None:
    with pytest.raises(ValueError, match="two results for trace openb, policy snug, seed 3"):
        inflation_studies([inflation("snug", 3, models=SMALL), inflation("snug", 3, models=SMALL)])


def test_a_policy_with_two_queues_is_two_policies() -> None:
    (study,) = time_studies([timed("snug", 1), timed("snug", 1, queue="strict")], "snug")
    assert study.policies == ["snug, backfill", "snug, strict"]
    assert study.baseline == "snug, backfill"


def test_the_bound_is_the_highest_known_for_each_seed() -> None:
    (study,) = time_studies(timeds(["best-fit", "snug"], [1, 2]))
    bounds = [
        max(study.runs[policy][seed].hours_idle_while_wanted_bound for policy in study.policies) for seed in (1, 2)
    ]
    assert idle_bound(study) == pytest.approx(sum(bounds) / 2)
    assert idle_bound(study) < compare(study, IDLE_WHILE_WANTED).spreads["snug"].mean


def test_samples_hold_until_the_next_one() -> None:
    # 10 % for the first half, 30 % for the next quarter, then nothing
    samples = [Sample(0, 10, 0), Sample(50, 30, 0), Sample(75, 0, 0)]
    found = averages(samples, lambda sample: sample.allocated_pct, 100.0)
    assert len(found) == MOMENTS
    assert sum(found) / MOMENTS == pytest.approx(0.5 * 10 + 0.25 * 30)
    assert [found[0], found[MOMENTS * 5 // 8], found[-1]] == pytest.approx([10, 30, 0])


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=30))
def test_no_stretch_of_time_is_lost_or_counted_twice(points: list[tuple[float, float]]) -> None:
    samples = [Sample(at, value, 0) for at, value in sorted(points)]
    samples.append(Sample(101.0, 0, 0))
    area = sum(one.allocated_pct * (other.at - one.at) for one, other in pairwise(samples))
    found = averages(samples, lambda sample: sample.allocated_pct, 101.0)
    assert sum(found) * 101.0 / MOMENTS == pytest.approx(area, abs=1e-6)


def test_curves_of_the_gain_are_paired_and_end_where_the_table_does() -> None:
    (study,) = inflation_studies(inflations(["best-fit", "snug"], [1, 2, 3], models=SMALL))
    gain, table = gained_by_arrived(study).by_policy["snug"], compare(study, ALLOCATED_AT_END).differences["snug"]
    assert (gain.mean[-1], gain.low[-1], gain.high[-1]) == pytest.approx((table.mean, table.low, table.high))
    assert 50 < parting_point(placed(study)) < 100
