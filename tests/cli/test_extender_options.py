"""`dovetail extender`: HAMi's flags work under their names or are refused with the reason, and docs say which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dovetail.cli.commands.extender import extender
from dovetail.cli.hami_flags import HONOURED_FLAGS, REFUSED_FLAGS, GoDuration, address, labels

PAGE = (Path(__file__).parents[2] / "docs" / "extender.md").read_text(encoding="utf-8")
# HAMi v2.10, cmd/scheduler/main.go, and klog's flags.
FLAGS = """
--http_bind --cert_file --key_file --scheduler-name --node-scheduler-policy --gpu-scheduler-policy
--metrics-bind-address --node-label-selector --kube-qps --kube-burst --kube-timeout --profiling
--node-lock-timeout --node-lock-retry-timeout --force-overwrite-default-scheduler --leader-elect
--leader-elect-resource-name --leader-elect-resource-namespace --legacy-metrics --device-config-file --debug
--enable-ascend --enable-iluvatar -v --logtostderr --alsologtostderr --log_dir --log_file --log_file_max_size
--log_backtrace_at --stderrthreshold --vmodule --add_dir_header --skip_headers --skip_log_headers --one_output
"""
HAMIS = FLAGS.split()


def run(*arguments: str) -> Result:
    """Without a cluster: a run that gets past its options ends with what is wrong with the kubeconfig."""
    return CliRunner(env={"KUBECONFIG": "/nonexistent"}).invoke(extender, arguments)


def test_every_flag_of_hami_is_either_honoured_or_refused() -> None:
    assert sorted(HAMIS) == sorted([*HONOURED_FLAGS, *(flag.name for flag in REFUSED_FLAGS)])
    options = {name for parameter in extender.params for name in parameter.opts}
    assert set(HAMIS) <= options


@pytest.mark.parametrize("name", HAMIS)
def test_the_page_has_every_flag(name: str) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and f"`{name}`" in line]
    assert len(rows) == 1
    refused = {flag.name: flag for flag in REFUSED_FLAGS}.get(name)
    assert ("refused: " in rows[0]) == (refused is not None)
    if refused is not None:
        assert refused.why in rows[0]
        assert set(re.findall(r"`(\w+)`", rows[0].rpartition("|")[0].rpartition("|")[2])) == refused.harmless


@pytest.mark.parametrize("flag", REFUSED_FLAGS, ids=lambda flag: flag.name)
def test_a_refused_flag_says_why_and_what_it_means_anyway_is_accepted(flag: object) -> None:
    from dovetail.cli.hami_flags import RefusedFlag

    assert isinstance(flag, RefusedFlag)
    other = "false" if "true" in flag.harmless else "true"
    if other not in flag.harmless:
        result = run(f"{flag.name}={other}")
        assert result.exit_code == 2
        assert flag.why in result.output
    for value in flag.harmless:
        assert flag.name not in run(f"{flag.name}={value}", "--kubeconfig", "/nonexistent").output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cert_file", "x"], "--key_file is missing"),
        (["--cert_file", "/nonexistent", "--key_file", "/nonexistent"], "/nonexistent: No such file"),
        (["--http_bind", "8080"], "--http_bind: '8080' is not HOST:PORT"),
        (["--http_bind", "x:99999"], "is not HOST:PORT"),
        (["--node-lock-timeout", "soon"], "'soon' is no duration, such as 28s or 5m"),
        (["--node-scheduler-policy", "bestest"], "bestest"),
        (["-v=loud"], "'loud' is no number"),
        (["--node-label-selector", "pool"], "is not KEY=VALUE"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_values_are_written_as_in_go() -> None:
    assert GoDuration().convert("1m30s", None, None) == 90.0
    assert GoDuration().convert("0", None, None) == 0.0
    assert address("--http_bind", ":8080") == ("", 8080)
    assert address("--http_bind", "[::1]:8080") == ("::1", 8080)
    assert labels(None, None, ("a=b,c=d", "e=f")) == ("a=b", "c=d", "e=f")  # type: ignore[arg-type]
