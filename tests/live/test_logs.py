"""The log of a scheduler on a real API server: JSON with fields, a line a placement, one line for absent kinds."""

from __future__ import annotations

import json
from typing import Any

from tests.live.dovetail_process import scheduling
from tests.live.test_scheduling import placed
from tools.controlplane import objects
from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane


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


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def placements(text: str) -> list[dict[str, Any]]:
    return [line for line in records(text) if line["level"] == "debug" and "cards" in line]
