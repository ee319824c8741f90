"""The log of a scheduler on a real API server: JSON with fields, a line a placement, one line for absent kinds."""

from __future__ import annotations

import json
import re
from typing import Any

from dovetail.kube.log import LOG_FIELDS
from tests.live.dovetail_process import scheduling
from tests.live.test_scheduling import placed
from tools.controlplane import objects
from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane

# What authenticates a user in a kubeconfig.
SECRET_FIELD = re.compile(r'"?(?:token|client-key-data|password)"?: *"?([^"\s,}]+)')


def test_placements_are_lines_at_debug_and_kinds_that_are_not_served_are_one_line(
    plane: ControlPlane, api: Client
) -> None:
    api.create(objects.node("n", gpus=2))
    with scheduling(plane, "--verbose", "--log-format", "json") as dovetail:
        for name in ("a", "b"):
            api.create(objects.pod(name, objects.gpu_limits(1)))
        assert placed(api, "a", "b") == ["n", "n"]
        api.wait_until(lambda: len(placements(dovetail.words())) == 2, "both placements are logged", 30)
        lines = records(dovetail.words())
    assert {(line["pod"], line["node"]) for line in placements(dovetail.words())} == {
        ("default/a", "n"),
        ("default/b", "n"),
    }
    assert all({"time", "level", "message"} <= set(line) for line in lines)
    assert all("\N{REPLACEMENT CHARACTER}" not in line["message"] for line in lines)
    shown = [line for line in lines if line["level"] != "debug"]
    assert len([line for line in shown if "podgroups" in line["message"]]) == 1
    assert not [line for line in shown if "404" in line["message"]]
    assert not [line for line in shown if line["level"] in ("warning", "error")]


def test_nothing_secret_is_logged_at_any_level(plane: ControlPlane, api: Client) -> None:
    """Pods with secrets in their environment, arguments and annotations: one is placed, two can never be."""
    api.create(objects.node("n", gpus=1))
    secret, user = "s3cr3t-of-a-pod", plane.kubeconfig("dovetail").read_text()
    hidden = {secret, *SECRET_FIELD.findall(user)}
    assert len(hidden) > 1  # the kubeconfig has a token, or a key
    with scheduling(plane, "--verbose", "--log-format", "json") as dovetail:
        for name, limits in (
            ("a", objects.gpu_limits(1)),
            ("b", objects.gpu_limits(9)),
            ("c", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9999999"}),
        ):
            pod = objects.pod(name, limits)
            pod["metadata"].setdefault("annotations", {})["team.example/password"] = secret
            pod["spec"]["containers"][0] |= {"env": [{"name": "PASSWORD", "value": secret}], "args": [secret]}
            api.create(pod)
        placed(api, "a")
        api.wait_until(lambda: len(placements(dovetail.words())) == 1, "the placement is logged", 30)
        said = dovetail.words()
    fields = {field for line in records(said) for field in line}
    assert {"pod", "uid", "node", "cards"} < fields
    assert fields <= {"time", "level", "message", *LOG_FIELDS}
    assert [word for word in hidden if word in said] == []


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def placements(text: str) -> list[dict[str, Any]]:
    return [line for line in records(text) if line["level"] == "debug" and "cards" in line]
