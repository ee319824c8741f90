"""Commands on something that is no API server, or an empty one: what is said, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dovetail.kube.live.left_out import MOST_LEFT_OUT_NAMED
from tests.cli.answering import answering, kubeconfig
from tests.cli.conftest import Run

LOGIN = b"<html>Log in</html>"
EMPTY = b'{"kind": "List", "metadata": {}, "items": []}'
Serve = Callable[[bytes], Path]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Answer every request with this body; returns a kubeconfig."""
    with ExitStack() as servers:
        yield lambda body: kubeconfig(tmp_path, servers.enter_context(answering(lambda path: body)))


@pytest.mark.parametrize(
    "words", [("get", "gpus"), ("snapshot",), ("plan", "--live"), ("top", "--once"), ("doctor",), ("shadow",)]
)
@pytest.mark.parametrize("body", [LOGIN, b"[]", b"12"])
def test_an_answer_that_is_no_api_servers_is_said(words: tuple[str, ...], body: bytes, run: Run, serve: Serve) -> None:
    """A login page of a proxy, for example: it comes with status 200."""
    result = run(*words, "--kubeconfig", serve(body))
    assert result.exit_code == 2
    assert "GET /" in result.stderr


@pytest.mark.parametrize("words", [("doctor",), ("doctor", "--from", "hami")])
def test_doctor_says_that_an_answer_cannot_be_read(words: tuple[str, ...], run: Run, serve: Serve) -> None:
    """Lists without items, and a Service without metadata."""
    result = run(*words, "--kubeconfig", serve(b"{}"))
    assert result.exit_code == 2
    assert "an answer of the API server cannot be read" in result.stderr


def test_an_empty_cluster_is_no_mistake(run: Run, serve: Serve) -> None:
    there = ("--kubeconfig", serve(EMPTY))
    listed = run("get", "gpus", *there)
    assert (listed.exit_code, listed.stdout) == (0, "")
    assert "nothing found" in listed.stderr
    assert run("top", "--once", *there).stdout.startswith("0 nodes · 0 GPUs, 0 free")
    planned = run("plan", "--live", *there)
    assert (planned.exit_code, "0 pods" in planned.stdout) == (0, True)
    assert run("doctor", *there).exit_code == 2


@pytest.mark.parametrize(
    "words", [("get", "pods", "-A"), ("snapshot",), ("plan", "--live"), ("compare", "--live"), ("top", "--once")]
)
def test_objects_that_cannot_be_read_are_named_up_to_a_bound(words: tuple[str, ...], run: Run, serve: Serve) -> None:
    broken = [{"metadata": {"name": f"o{n}", "namespace": "n"}, "spec": "none", "status": "none"} for n in range(40)]
    result = run(*words, "--kubeconfig", serve(json.dumps({"metadata": {}, "items": broken}).encode()))
    said = [line for line in result.stderr.splitlines() if "cannot be read and" in line]
    assert len(said) == MOST_LEFT_OUT_NAMED + 1, result.stderr
    assert "o0 cannot be read and is left out: " in said[0]
    assert "more cannot be read and are left out (" in said[-1]
    assert "40 Pod," in said[-1]
    assert said[-1].endswith("`dovetail doctor` names all nodes and pods")
