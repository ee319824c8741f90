"""Options of `dovetail scheduler` that are refused before anything is asked of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


@pytest.mark.parametrize("text", ["pool", "=a", "pool=a,zone=b", "pool = a"])
def test_a_node_selector_that_is_no_label(text: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    said = run("scheduler", "--kubeconfig", str(path), "--node-selector", text)
    assert said.exit_code == 2
    assert f"--node-selector: {text!r} is not KEY=VALUE, such as pool=research" in said.output


@pytest.mark.parametrize("level", ["debug", "warning", "error"])
def test_tls_verification_that_is_off_is_said_at_every_start(level: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG.replace('"http://127.0.0.1:1"', '"https://127.0.0.1:1", insecure-skip-tls-verify: true'))
    command = ("scheduler", "--kubeconfig", str(path), "--log-level", level, "--node-selector", "ends here")
    for _ in range(2):
        said = run(*command).stderr
        assert f"TLS VERIFICATION IS OFF for cluster c (https://127.0.0.1:1), context x of {path}" in said
    path.write_text(KUBECONFIG)
    assert "TLS" not in run(*command).stderr


@pytest.mark.parametrize("listen", ["99999999", "127.0.0.1:65536", "127.0.0.1:http", "127.0.0.1"])
@pytest.mark.parametrize("command", ["scheduler", "extender"])
def test_an_address_that_is_none_is_refused_before_the_kubeconfig_is_looked_at(
    command: str, listen: str, tmp_path: Path, run: Run
) -> None:
    said = run(command, "--kubeconfig", str(tmp_path / "none"), "--listen", listen)
    assert said.exit_code == 2
    assert f"--listen: {listen!r} is not HOST:PORT, such as 127.0.0.1:9396" in said.output
    assert "kubeconfig" not in said.output


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--webhook-configuration", "Bad Name!"),
        ("--webhook-configuration", "a..b"),
        ("--webhook-configuration", "a" * 254),
        ("--webhook-service", ""),
    ],
)
def test_names_that_kubernetes_would_refuse_are_not_printed_into_the_webhooks_configuration(
    option: str, name: str, run: Run
) -> None:
    said = run("webhook", "--print-configuration", option, name)
    assert said.exit_code == 2
    assert f"{option}: {name!r} is not a DNS name" in said.output
    assert "MutatingWebhookConfiguration" not in said.stdout


@pytest.mark.parametrize("name", ["", "hami\n", "hami scheduler"])
def test_scheduler_names_that_no_pod_states_are_refused(name: str, run: Run) -> None:
    said = run("webhook", "--print-configuration", "--scheduler-name", name)
    assert said.exit_code == 2
    assert f"--scheduler-name: {name!r} is empty or has spaces" in said.output
    assert run("webhook", "--print-configuration", "--scheduler-name", "My_Scheduler").exit_code == 0


@pytest.mark.parametrize("name", ["dovetail-webhook", "gpu.example.com", "a" * 63])
def test_names_that_kubernetes_takes_are_printed(name: str, run: Run) -> None:
    said = run("webhook", "--print-configuration", "--webhook-configuration", name, "--scheduler-name", name)
    assert said.exit_code == 0
    assert f"  name: {name}\n" in said.stdout


def test_the_scheduler_refuses_a_bad_name_before_the_kubeconfig_is_looked_at(tmp_path: Path, run: Run) -> None:
    command = ("scheduler", "--kubeconfig", str(tmp_path / "none"), "--webhook-configuration", "Bad Name!")
    said = run(*command)
    assert said.exit_code == 2
    assert "--webhook-configuration: 'Bad Name!' is not a DNS name" in said.output
