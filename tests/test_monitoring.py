"""deploy/monitoring: dashboards that Grafana reads, rules that promtool accepts, alerts that fire when they should."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.kube.live.metrics.hami import CARDS_LEFT_OUT, CONTAINERS_LEFT_OUT
from dovetail.kube.live.metrics.table import METRICS
from tests.live.load_sources import find_prometheus
from tests.monitoring import ALERTS, DASHBOARDS, metrics_in, queries_of
from tools import alerts, dashboards

SERVED = {*METRICS, CARDS_LEFT_OUT.name, CONTAINERS_LEFT_OUT.name}
RULES = [rule for group in ALERTS for rule in group["rules"]]
RUNBOOKS = Path(__file__).parent.parent / "docs" / "runbooks"
UNITS = {"short", "s", "percentunit", "reqps", "bytes"}  # of Grafana's list of units
KINDS = {"timeseries", "stat"}

Inputs = Mapping[str, str]  # series -> values, one a minute, in promtool's notation
UP = 'dovetail_build_info{job="d",version="1"}'


def _both(firing: Inputs, quiet: Inputs) -> tuple[Inputs, Inputs]:
    return {UP: "1+0x120", **firing}, {UP: "1+0x120", **quiet}


def _buckets(name: str, low: str, high: str, labels: str = "") -> tuple[Inputs, Inputs]:
    """100 values a minute: all below `high` and none below `low`, or all below `low`."""
    slow, fast = ("0+0x120", "0+100x120"), ("0+100x120", "0+100x120")
    return _both(
        *(
            {
                f'{name}_bucket{{job="d",le="{le}"{labels}}}': values
                for le, values in zip((low, high, "+Inf"), (*case, "0+100x120"), strict=True)
            }
            for case in (slow, fast)
        )
    )


def _grows(name: str, labels: str = "") -> tuple[Inputs, Inputs]:
    """One more after an hour and a half and in each minute after it; or never."""
    series = f'{name}{{job="d"{labels}}}'
    return _both({series: "0+0x110 1+1x10"}, {series: "7+0x120"})


def _is(name: str, firing: str, quiet: str, labels: str = "") -> tuple[Inputs, Inputs]:
    series = f'{name}{{job="d"{labels}}}'
    return _both({series: f"{firing}+0x120"}, {series: f"{quiet}+0x120"})


def _queue(used: int, wanted: int, guarantee: int) -> Inputs:
    labels = '{job="d",instance="i",queue="q",resource="gpus"}'
    amounts = {"used": used, "wanted": wanted, "guarantee": guarantee}
    return {f"dovetail_queue_{name}{labels}": f"{amount}+0x120" for name, amount in amounts.items()}


def _pieces(pieces: int, waiting: int) -> Inputs:
    return {
        'dovetail_gpus_free{job="d",model="m"}': "10+0x120",
        'dovetail_gpus_free_in_pieces{job="d",model="m"}': f"{pieces}+0x120",
        'dovetail_waiting_pods{job="d",reason="Unschedulable"}': f"{waiting}+0x120",
    }


def _leader(leader: int, ready: int) -> Inputs:
    return {
        'dovetail_leader{job="d",instance="i"}': f"{leader}+0x120",
        'dovetail_ready{job="d",instance="i"}': f"{ready}+0x120",
    }


def _idle(gpus: int) -> Inputs:
    return {
        'dovetail_gpus{job="d",model="m"}': "100+0x120",
        'dovetail_gpus_held_idle{job="d",state="starting"}': f"{gpus}+0x120",
    }


def _answers(bad: int) -> Inputs:
    """A hundred good requests a minute, and `bad` that got no answer; 404 is no failure."""
    verb = 'job="d",verb="get",resource="pods"'
    return {
        f'dovetail_api_requests_total{{{verb},code="200"}}': "0+100x120",
        f'dovetail_api_requests_total{{{verb},code="404"}}': "0+100x120",
        f'dovetail_api_requests_total{{{verb},code="none"}}': f"0+{bad}x120",
    }


CASES: dict[str, tuple[Inputs, Inputs]] = {
    "DovetailDown": ({UP: "1+0x120"}, _leader(0, 0)),  # a webhook in pods of its own has no leader and places nothing
    "DovetailNoLeader": _is("dovetail_leader", "0", "1"),
    "DovetailTwoLeaders": _is("dovetail_leader", "2", "1"),
    "DovetailNotReady": _both(_leader(1, 0), _leader(0, 0)),
    "DovetailWatchStale": _is("dovetail_watch_age_seconds", "181", "60", ',instance="i",resource="/api/v1/pods"'),
    "DovetailDecisionsSlow": _buckets("dovetail_decision_seconds", "0.1", "1", ',result="placed"'),
    "DovetailBindingsSlow": _buckets("dovetail_bind_seconds", "5", "10"),
    "DovetailBindRefusals": _both(
        {'dovetail_bind_refusals_total{job="d"}': "0+2x120"}, {'dovetail_bind_refusals_total{job="d"}': "0+1x120"}
    ),
    "DovetailApiErrors": _both(_answers(11), _answers(10)),  # 11 of 211 is more than 5 %, 10 of 210 is less
    "DovetailPodsWaitLong": _is("dovetail_oldest_waiting_pod_seconds", "3601", "3600"),
    "DovetailQueueStarved": _both(_queue(used=2, wanted=3, guarantee=4), _queue(used=2, wanted=2, guarantee=4)),
    "DovetailGpusHeldIdle": _both(_idle(4), _idle(2)),
    "DovetailFragmentation": _both(_pieces(6, 1), _pieces(6, 0)),
    "DovetailGangBelowMinimum": _is("dovetail_gangs_below_minimum", "1", "0"),
    "DovetailEvictions": _both(
        {'dovetail_evictions_total{job="d"}': "0+13x120"}, {'dovetail_evictions_total{job="d"}': "0+12x120"}
    ),
    "DovetailLedgerDrift": _grows("dovetail_ledger_differences_total"),
    "DovetailObjectsSetAside": _grows("dovetail_objects_set_aside_total"),
    "DovetailRescued": _grows("dovetail_rescued_total"),
    "DovetailRecordsTouched": _grows("dovetail_records_changed_total"),
    "DovetailPodsPastWebhook": _is("dovetail_pods_past_webhook", "1", "0", ',state="bound"'),
    "DovetailKernelsFailed": _is("dovetail_kernels_failed_total", "1", "0"),
    "DovetailSignalsFailing": _is("dovetail_signal_sources_failing", "1", "0"),
    "DovetailJournalFailing": _is("dovetail_journal_failing", "1", "0"),
    "DovetailEventsDropped": _grows("dovetail_events_dropped_total"),
    "DovetailSeriesLeftOut": _is("dovetail_hami_cards_left_out", "8", "0"),
}


def _promtool(*words: str) -> str:
    tool = Path(find_prometheus()).parent / "promtool"
    done = subprocess.run([str(tool), *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules() -> None:
    assert f"SUCCESS: {len(RULES)} rules found" in _promtool("check", "rules", str(alerts.PLAIN))


def test_each_alert_fires_when_it_should_and_not_otherwise(tmp_path: Path) -> None:
    assert set(CASES) == {rule["alert"] for rule in RULES}
    tests = []
    for name, (firing, quiet) in CASES.items():
        for inputs, fires in ((firing, True), (quiet, False)):
            series = [{"series": one, "values": values} for one, values in inputs.items()]
            expected = [{"labels": "{}", "value": 1}] if fires else []
            query = f'count(count by (alertname) (ALERTS{{alertname="{name}",alertstate="firing"}}))'
            asked = {"expr": query, "eval_time": "120m", "exp_samples": expected}
            tests.append({"interval": "1m", "name": name, "input_series": series, "promql_expr_test": [asked]})
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(alerts.PLAIN)], "tests": tests}))
    assert "SUCCESS" in _promtool("test", "rules", str(file))


def test_the_prometheus_rule_has_the_same_rules() -> None:
    """After a change: `python -m tools.alerts`."""
    assert alerts.FOR_OPERATOR.read_text(encoding="utf-8") == alerts.prometheus_rule()


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == {rule["alert"] for rule in RULES}
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/runbooks/{rule['alert']}.md"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        text = (RUNBOOKS / f"{rule['alert']}.md").read_text(encoding="utf-8")
        assert f"{rule['annotations']['summary']} Severity `{rule['labels']['severity']}`" in " ".join(text.split())
        headings = [line for line in text.splitlines() if line.startswith("## ")]
        assert headings == ["## What it means", "## First look", "## Fix", "## When to ignore it"]


def test_alerts_and_dashboards_name_only_metrics_that_are_served() -> None:
    queries = [rule["expr"] for rule in RULES] + [query for path in DASHBOARDS for query in queries_of(path)]
    named = {name for query in queries for name in metrics_in(query)}
    assert named - SERVED == set()
    assert len(named) > 50


def test_every_metric_has_a_place_on_a_dashboard_or_in_an_alert() -> None:
    """Except those that a person looks at while searching for a fault."""
    queries = [rule["expr"] for rule in RULES] + [query for path in DASHBOARDS for query in queries_of(path)]
    unseen = set(METRICS) - {name for query in queries for name in metrics_in(query)}
    assert unseen == {
        *("dovetail_bind_writes_total", "dovetail_conditions_written_total", "dovetail_events_sent_total"),
        *("dovetail_gang_members_released_total", "dovetail_kernel_compile_seconds_total", "dovetail_lists_total"),
        *("dovetail_kernels_compiled_total", "dovetail_ledger_audits_total", "dovetail_ledger_rebuilds_total"),
        *("dovetail_nodes_measured", "dovetail_peers_elsewhere", "dovetail_peers_unknown", "dovetail_pods_known"),
        *("dovetail_pods_holding_idle_gpus", "dovetail_pods_waiting", "dovetail_records_sealed"),
        *("dovetail_signals_refused_total", "dovetail_watch_failures_total"),
    }


@pytest.mark.parametrize("dashboard", dashboards.DASHBOARDS, ids=lambda one: one.uid)
def test_the_files_are_those_of_the_table(dashboard: dashboards.Dashboard) -> None:
    """After a change: `python -m tools.dashboards`."""
    assert dashboards.path(dashboard).read_text(encoding="utf-8") == dashboards.text(dashboard)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_grafana_could_read_the_dashboard(path: Path) -> None:
    """The fields of Grafana's documented JSON model: ids, places, sources, units, variables."""
    board: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert board["uid"] == path.stem
    assert len(board["uid"]) <= 40
    assert isinstance(board["schemaVersion"], int)
    ids: list[int] = []
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        ids.append(panel["id"])
        assert panel["type"] in KINDS
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, f"{panel['title']} overlaps"
        taken |= cells
        assert [target["refId"] for target in panel["targets"]] == sorted({one["refId"] for one in panel["targets"]})
        assert all(one["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for one in panel["targets"])
        assert all('job=~"$job"' in one["expr"] for one in panel["targets"])
    assert ids == sorted(set(ids))
    names = {variable["name"] for variable in board["templating"]["list"]}
    text = path.read_text(encoding="utf-8")
    assert names >= {"datasource", "job"}
    assert all(f"${name}" in text or f"${{{name}}}" in text for name in names)
