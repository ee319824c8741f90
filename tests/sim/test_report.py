"""The page: what it says, that it stands alone, that no name can break it, and that a browser draws it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.sim.curves import fairness_by_hour
from dovetail.sim.report import maps, write_report
from dovetail.sim.report.headline import inflation_sentence, time_sentence
from dovetail.sim.report.origin import Origin
from dovetail.sim.report.overview import overall
from dovetail.sim.report.page import UNKNOWN_ORIGIN, render
from dovetail.sim.report.words import amount, change, count, interval, seeds_of, with_unit
from dovetail.sim.results import Column, NodeMap, Result
from dovetail.sim.study import inflation_studies, time_studies
from tests.sim.results_builder import QUALITY, SMALL, inflation, inflations, timed, timeds

POLICIES = ("best-fit", "snug", "spread")
SEEDS = range(42, 47)
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{script}}"


class Parsed(HTMLParser):
    """Tags and texts, as a browser without scripts sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.script: str | None = None  # id of the one we are in
        self.blocks: dict[str, str] = {}  # id of a <script> -> what is in it
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.script = dict(attrs).get("id") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self.script = None

    def handle_data(self, data: str) -> None:
        if self.script is not None:
            self.blocks[self.script] = data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).replace("\u00a0", " ").split())

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.blocks["results"])
        return found


def page(
    results: Sequence[Result], title: str = "A report", baseline: str | None = None, origin: Origin = UNKNOWN_ORIGIN
) -> Parsed:
    return Parsed(render(results, title, baseline, origin))


def plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u2212", "-")


# --- what it says -----------------------------------------------------------------------------------------------------


def test_the_headline_says_how_much_more_is_placed() -> None:
    (study,) = inflation_studies(inflations(POLICIES, SEEDS))
    found = re.fullmatch(
        r"snug places (\d\.\d) % more GPU capacity than best-fit: (\d+) of 6,176 GPUs\.",
        plain(inflation_sentence(study)),
    )
    assert found
    assert int(found[2]) == pytest.approx(float(found[1]) / 100 * 6176, abs=0.05 / 100 * 6176 + 1)


@pytest.mark.parametrize(
    ("policies", "seeds", "baseline", "words"),
    [
        (["best-fit", "snug"], [1], None, "snug places .* more .* than best-fit: .*one seed: it may be chance"),
        (["best-fit", "spread"], SEEDS, None, "best-fit places the most GPU capacity: .* more than spread"),
        (["snug", "fgd"], [1, 2], None, "No policy places clearly more GPU capacity than snug; fgd comes nearest"),
        (["best-fit"], SEEDS, None, "best-fit places 9.* % of the GPU capacity: "),
        (["best-fit", "snug"], SEEDS, "snug", "snug places the most GPU capacity: .* more than best-fit"),
    ],
)
def test_the_headline_is_honest(policies: list[str], seeds: Sequence[int], baseline: str | None, words: str) -> None:
    (study,) = inflation_studies(inflations(policies, seeds, models=SMALL), baseline)
    assert re.match(words, plain(inflation_sentence(study)))


def test_equal_policies_are_said_to_be_equal() -> None:
    same = [inflation("best-fit", 1, models=SMALL)]
    (study,) = inflation_studies([*same, *[replace(run, policy="twin") for run in same]])
    assert inflation_sentence(study) == "twin and best-fit place exactly the same GPU capacity."


def test_the_headline_over_time_counts_gpu_hours() -> None:
    (study,) = time_studies(timeds(POLICIES, SEEDS))
    words = (
        r"snug saves [\d.]+ GPU-hours against best-fit: \d+ GPU-hours stand idle while jobs wait, not \d+ GPU-hours\."
    )
    assert re.fullmatch(words, plain(time_sentence(study)))


def test_several_traces_make_one_sentence() -> None:
    results = inflations(POLICIES, SEEDS, "a", "b", "c", models=SMALL)
    (sentence,) = overall(inflation_studies(results), [])
    assert re.match(r"snug places more GPU capacity than best-fit on all 3 traces: [\d.]+ to [\d.]+ %", plain(sentence))


def ending_at(policy: str, trace: str, *allocated: float) -> list[Result]:
    """A run per seed that places so many percent in the end."""
    run = inflation(policy, 0, trace, SMALL)
    run = replace(run, arrived_pct=100.0)
    return [replace(run, seed=seed, columns={"100": Column(end, 0, 0)}) for seed, end in enumerate(allocated)]


def test_a_clear_winner_leads_before_a_higher_mean_that_may_be_chance() -> None:
    # gains of 0.5 ± little against gains of 0, 2 and 1: mean 1, but an interval with 0
    results = [
        *ending_at("base", "a", 90, 90, 90),
        *ending_at("lucky", "a", 90, 92, 91),
        *ending_at("steady", "a", 90.5, 90.5, 90.6),
    ]
    (study,) = inflation_studies(results)
    assert inflation_sentence(study).startswith("steady places")


def test_the_overview_keeps_no_defeat_back() -> None:
    won = [*ending_at("base", "a", 90, 91), *ending_at("new", "a", 94, 95)]
    lost = [*ending_at("base", "b", 90, 91), *ending_at("new", "b", 89, 90)]
    (sentence,) = overall(inflation_studies([*won, *lost]), [])
    assert plain(sentence) == (
        "new places more GPU capacity than base on 1 of 2 traces: 4.0 %, up to 1.8 GPUs; worse on 1."  # 4 % of 44
    )
    twice = [*lost, *[replace(run, trace="c") for run in lost]]
    (sentence,) = overall(inflation_studies(twice), [])
    assert "new, the best of the others on average, places clearly more" in sentence
    assert sentence.endswith("than base on none of 2 traces; worse on 2.")


def test_hours_over_several_traces_are_summed() -> None:
    results = timeds(POLICIES, SEEDS, "a", "b")
    (sentence,) = overall([], time_studies(results))
    words = r"snug saves [\d.]+ GPU-hours of idling while jobs wait against best-fit over 2 traces, clearly on all 2\."
    assert re.fullmatch(words, plain(sentence))


def test_every_number_is_in_a_table() -> None:
    found = page(inflations(POLICIES, SEEDS, models=SMALL) + timeds(POLICIES, SEEDS))
    for words in (
        "GPU capacity placed at 100 % arrived",
        "Pods without a place",
        "Packing by GPU model, in the end",
        "How to read this page",
        "about 19 of 20 such intervals",
        "Of the idle GPU capacity, fragmented",
        "Of the idle GPU capacity, fragmented at the busiest moment",
        "Wait by tenant",
        "GPU-hours by size of the job",
        "GPU-hours by tenant",
        "8+ GPUs",
        "no scheduler can do better",
        "seeds",
        "42 to 46",
        "backfill queue",
    ):
        assert words in found.text, words
    assert [attributes["data-chart"] for tag, attributes in found.tags if "data-chart" in attributes] == [
        "allocated",
        "fragmented",
        "allocated",
        "waiting",
    ]


def test_runs_with_rights_show_fairness_over_time() -> None:
    """Half of the run at 50 %, the other half at 100 %."""
    run = timed()
    fair = replace(run, order="dominant-share", fairness_samples=[50.0] * 250 + [100.0] * 250)
    found = page([fair, replace(fair, policy="snug")])
    charts = [attributes["data-chart"] for tag, attributes in found.tags if "data-chart" in attributes]
    assert charts == ["allocated", "waiting", "fairness"]
    mean = fairness_by_hour(time_studies([fair])[0]).by_policy[fair.policy].mean
    assert (mean[1], mean[-2]) == pytest.approx((50.0, 100.0))
    assert "Fairness between tenants over time" not in page([replace(fair, fairness_samples=[])]).text


def test_gpu_hours_stand_beside_their_share_and_are_means_over_seeds() -> None:
    """9 is the mean of 8 and 10 GPU-hours, 4.5 % that of 4 % and 5 %."""
    run = timed()
    usages = [replace(run.by_size["share"], gpu_hours=hours, gpu_hours_pct=hours / 2) for hours in (8.0, 10.0)]
    found = page([replace(run, seed=seed, by_tenant={"vision": usage}) for seed, usage in enumerate(usages)])
    assert re.search(r"GPU-hours by tenant Tenant best-fit vision 9 4\.5 %", found.text)


def test_one_seed_says_that_there_is_no_interval() -> None:
    found = page(inflations(POLICIES, [42], models=SMALL))
    assert "One seed tells nothing about chance: there is no interval." in found.text
    assert "none: one seed" in found.text


def test_runs_without_gpus_columns_or_samples_still_make_a_page() -> None:
    placed, waited = inflation(models=SMALL), timed()
    bare = NodeMap("cpu-only", "", [])
    results: list[Result] = [
        replace(placed, columns={}, models={}, map=[bare]),
        replace(waited, samples=[], hours_capacity=0.0, models={}, map=[], by_tenant={"": waited.by_size["share"]}),
    ]
    found = page(results)
    assert "best-fit was not asked for anything." in found.text
    assert "Wait by tenant" not in found.text
    assert not [tag for tag, _ in found.tags if tag == "canvas"]


def test_an_empty_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one result"):
        write_report([], tmp_path / "report.html")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (amount(95.04, "%"), "95.0 %"),
        (amount(1234.5, "GPU-hours"), "1,234"),
        (amount(12, "pods"), "12"),
        (amount(45, "s"), "45 s"),
        (amount(5400, "s"), "90.0 min"),
        (amount(9000, "s"), "2.5 h"),
        (amount(259200, "s"), "3.00 d"),
        (change(0.6, "%"), "+0.60 points"),
        (change(-0.001, "%"), "0.00 points"),
        (change(-21.6, "pods"), "-21.6"),
        (with_unit(amount(1234, "pods"), "pods"), "1,234 pods"),
        (with_unit(amount(1, "pods"), "pods"), "1 pod"),
        (with_unit(change(1, "GPUs"), "GPUs"), "+1 GPU"),
        (with_unit(amount(95.04, "%"), "%"), "95.0 %"),
        (with_unit(amount(45, "s"), "s"), "45 s"),
        (change(-90, "s", 7200), "0.0 h"),
        (change(5400, "s"), "+90.0 min"),
        (interval(-0.1, 0.25, "%", 1), "-0.10 to +0.25 points"),
        (count(1, "policy"), "1 policy"),
        (count(2, "policy"), "2 policies"),
        (seeds_of([42, 43, 44]), "42 to 44"),
        (seeds_of([1, 5]), "1 and 5"),
    ],
)
def test_numbers_are_written_for_people(said: str, text: str) -> None:
    assert plain(said) == text


# --- it stands alone --------------------------------------------------------------------------------------------------


def test_the_page_needs_no_network() -> None:
    text = render(inflations(POLICIES, SEEDS, models=SMALL), "A report")
    for tag, attributes in Parsed(text).tags:
        assert tag not in ("link", "img", "iframe", "object", "base"), tag
        assert not {"src", "href", "action", "srcset"} & attributes.keys(), (tag, attributes)
    addresses = set(re.findall(r"https?://[^\s\"')]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of SVG, never fetched
    assert "url(" not in text
    assert "default-src &#x27;none&#x27;" in text


def test_the_same_results_make_the_same_page() -> None:
    results = timeds(POLICIES, SEEDS)
    assert render(results, "A report") == render(results, "A report")


def test_five_policies_ten_seeds_and_three_traces_stay_below_450_kb(tmp_path: Path) -> None:
    results = inflations(list(QUALITY), range(42, 52), "a", "b", "c")
    write_report(results, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 450_000


def test_the_data_holds_every_seed_and_the_maps() -> None:
    results = inflations(POLICIES, SEEDS, models=SMALL)
    data = page(results).data
    (chapter,) = data["chapters"]
    snug = chapter["measures"]["allocated_end"]["policies"]["snug"]
    assert list(snug["by_seed"]) == [str(seed) for seed in SEEDS]
    assert snug["difference"]["verdict"] == "better"
    in_pieces = chapter["curves"]["fragmented_of_idle"]["policies"]["snug"]["mean"][-1]
    assert in_pieces == round(chapter["measures"]["frag_ratio_end"]["policies"]["snug"]["mean"], 2)
    cells = chapter["maps"]["snug"]
    milli = [cells["levels"][at] for at in base64.b64decode(cells["gpus"])]
    assert cells["seed"] == 42
    assert milli == [given for node in inflation("snug", 42, models=SMALL).map for given in node.gpus]
    assert len(data["clusters"]) == 1
    assert sum(data["clusters"][0]["gpus_of"]) == len(milli) == chapter["gpus"]


def test_traces_on_the_same_nodes_share_their_names() -> None:
    data = page(inflations(POLICIES, [1], "a", "b", models=SMALL) + timeds(POLICIES, [1])).data
    assert [chapter["cluster"] for chapter in data["chapters"]] == [0, 0, 0]
    assert len(data["clusters"]) == 1


def test_a_map_with_too_many_fillings_is_rounded_but_empty_and_full_stay_so() -> None:
    every = list(range(1001))
    found = maps.cells([NodeMap("n", "T4", every)])
    read = [found["levels"][at] for at in base64.b64decode(found["gpus"])]
    assert (read[0], read[1], read[999], read[1000]) == (0, 1, 999, 1000)
    assert all(abs(milli - shown) < 4 for milli, shown in zip(every, read, strict=True))


def test_bands_of_the_table_beside_a_map() -> None:
    node = NodeMap("n", "T4", [0, 1, 249, 250, 499, 500, 750, 999, 1000])
    assert maps.by_band([node]) == {"T4": [1, 2, 2, 1, 2, 1]}


# --- no name can break it ---------------------------------------------------------------------------------------------


def hostile() -> list[Result]:
    models = {HOSTILE: (2, 4)}
    placed = inflations(["best-fit", HOSTILE], [1, 2], HOSTILE, models=models)
    waited = [timed(policy, 1, HOSTILE, models) for policy in ("best-fit", HOSTILE)]
    return [*placed, *waited]


def test_hostile_names_stay_text() -> None:
    usual = page(inflations(["best-fit", "snug"], [1, 2], models={"T4": (2, 4)}) + timeds(["best-fit", "snug"], [1]))
    found = page(hostile(), title=HOSTILE)
    assert [tag for tag, _ in found.tags].count("script") == [tag for tag, _ in usual.tags].count("script") == 2
    assert {tag for tag, _ in found.tags} == {tag for tag, _ in usual.tags}
    assert {key for _, attributes in found.tags for key in attributes} == {
        key for _, attributes in usual.tags for key in attributes
    }
    assert found.blocks[""] == usual.blocks[""]  # our script, unchanged
    assert found.data["chapters"][0]["trace"] == HOSTILE
    assert HOSTILE in found.text.replace("\u2060", "")


# --- a browser draws it -----------------------------------------------------------------------------------------------


def browser() -> str:
    names = [os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no browser: install chromium, or say where it is with CHROMIUM=…")
    return found


def test_looking_for_a_browser_never_fails_the_build() -> None:
    script = Path(__file__).parent.parent.parent / ".ci" / "chromium"
    nothing = {"PATH": "/nonexistent"}  # neither a browser nor a package manager
    done = subprocess.run(["/bin/sh", str(script)], capture_output=True, text=True, env=nothing, check=True)
    assert done.stdout == "No chromium here: the browser test will be skipped\n"


def opened(path: Path, profile: Path, width: int = 1200) -> Parsed:
    """The page after its scripts have run."""
    quiet = "--disable-background-networking --disable-component-update --disable-sync --no-first-run --disable-gpu"
    command = [browser(), "--headless", "--no-sandbox", *quiet.split(), f"--user-data-dir={profile}"]
    command += ["--virtual-time-budget=5000", f"--window-size={width},900", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    return Parsed(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("results", "ready"),
    [
        # a curve per policy in each of two charts, a map per policy
        (inflations(POLICIES, SEEDS), "charts:6 maps:3"),
        (inflations(POLICIES, SEEDS, "a", "b", models=SMALL) + timeds(POLICIES, SEEDS), "charts:18 maps:9"),
        (inflations(["alone"], [1], models=SMALL), "charts:2 maps:1"),
        ([inflation("short", 1, models=SMALL, last=0)], "charts:0 maps:1"),
        (hostile(), "charts:8 maps:4"),
    ],
    ids=["one trace", "both modes", "one policy", "no curve", "hostile names"],
)
def test_a_browser_draws_every_chart_without_an_error(tmp_path: Path, results: list[Result], ready: str) -> None:
    write_report(results, tmp_path / "report.html", title="A report")
    found = opened(tmp_path / "report.html", tmp_path / "profile")
    root = next(attributes for tag, attributes in found.tags if tag == "html")
    assert root.get("data-errors") is None
    assert root.get("data-ready") == ready
    curves = [attributes for tag, attributes in found.tags if tag == "path" and "curve" in (attributes["class"] or "")]
    assert all(re.fullmatch(r"M[\d.,L-]+", attributes["d"] or "") for attributes in curves)


@pytest.mark.slow
def test_the_page_notices_its_own_errors(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    text = render(inflations(["alone"], [1], models=SMALL), "A report")
    (tmp_path / "report.html").write_text(text.replace('"curves":', '"kurves":'), encoding="utf-8")
    found = opened(tmp_path / "report.html", tmp_path / "profile")
    root = next(attributes for tag, attributes in found.tags if tag == "html")
    assert "TypeError" in (root.get("data-errors") or "")
    assert root.get("data-ready") is None
