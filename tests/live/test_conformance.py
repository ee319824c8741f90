"""`make conformance` without running it: which specs, in which parts, and how the table is made."""

from __future__ import annotations

from pathlib import Path

from tools.conformance import listed, parts_of, results, table

ZONES = "[sig-scheduling] Multi-AZ Clusters should spread the pods of a service across zones [Serial]"
PREEMPTS = "[sig-scheduling] SchedulerPreemption [Serial] validates basic preemption works [Conformance]"
ROLLOUT = "[sig-apps] Deployment deployment should support rollover [Conformance]"
DAEMON = "[sig-apps] Daemon set [Serial] should run and stop simple daemon [Conformance]"
JUNIT = """<testsuites><testsuite>
<testcase name="[It] a holds [Serial]" status="passed"/><testcase name="[It] b fails" status="failed"/>
<testcase name="[It] c was not asked for" status="skipped"/><testcase name="[BeforeSuite]" status="passed"/>
</testsuite></testsuites>"""


def test_the_specs_are_listed_once_and_those_that_need_preemption_are_marked() -> None:
    specs, preemption = listed()
    scheduling = [spec for spec in specs if spec.startswith("[sig-scheduling]")]
    assert (len(scheduling), len(preemption)) == (28, 6)
    assert len(set(specs)) == len(specs)
    assert all(spec.startswith(("[sig-scheduling] ", "[sig-apps] ")) for spec in specs)
    assert all("SchedulerPreemption" in spec for spec in preemption)


def test_specs_of_sig_scheduling_run_alone_and_last() -> None:
    assert parts_of([ZONES, ROLLOUT, PREEMPTS, DAEMON]) == [[[ROLLOUT], [DAEMON]], [[ZONES, PREEMPTS]]]
    assert parts_of([ROLLOUT]) == [[[ROLLOUT]]]


def test_only_specs_that_ran_have_a_result(tmp_path: Path) -> None:
    (tmp_path / "junit_01.xml").write_text(JUNIT, encoding="utf-8")
    assert results(tmp_path) == {"a holds [Serial]": True, "b fails": False}


def test_the_table_names_sig_scheduling_and_whatever_does_not_hold() -> None:
    specs = [ZONES, PREEMPTS, ROLLOUT, DAEMON]
    found = {"kube-scheduler": dict.fromkeys(specs, True), "dovetail": {ZONES: True, ROLLOUT: False, DAEMON: True}}
    lines = table(specs, found, frozenset({PREEMPTS})).splitlines()
    assert lines[0] == "| spec | kube-scheduler | dovetail |"
    assert lines[2].endswith("across zones [Serial] | holds | holds |")
    assert lines[3].endswith("| holds | not run: needs preemption |")
    assert lines[4] == f"| {ROLLOUT} | holds | fails |"
    assert lines[5:] == ["| **sig-scheduling** | 2 of 2 | 1 of 2 |", "| **sig-apps** | 2 of 2 | 1 of 2 |"]


def test_the_page_has_a_row_for_every_spec_of_sig_scheduling() -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "default-scheduler.md").read_text(encoding="utf-8")
    specs, _ = listed()
    for spec in specs:
        if spec.startswith("[sig-scheduling] "):
            assert f"\n| {spec.removeprefix('[sig-scheduling] ')} | " in text
    assert f"of {sum(spec.startswith('[sig-apps] ') for spec in specs)} |" in text
