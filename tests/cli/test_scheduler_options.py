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
