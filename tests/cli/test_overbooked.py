"""A card that running pods use beyond its size is spoken of: `plan` must not show 200 % without a word."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from dovetail.cli.main import cli
from tests.kube.manifests import ALLOCATED, CORES, GPU, MEM, card, container, node, pod


def test_two_pods_that_hold_the_same_card(tmp_path: Path) -> None:
    asks = container({GPU: 1, MEM: 6000, CORES: 60})
    pods = [
        pod(name, asks, meta={"annotations": {ALLOCATED: "GPU-0,NVIDIA,6000,60:;"}, "uid": name}, nodeName="n")
        for name in ("a", "b")
    ]
    file = tmp_path / "cluster.json"
    file.write_text("\n".join(json.dumps(item) for item in (node("n", card("GPU-0", memory=8000)), *pods)))
    said = CliRunner().invoke(cli, ["plan", "-f", str(file)])
    assert said.exit_code == 0, said.output
    # 2 x 6,000 MiB of 8,000, 2 x 60 % of 100
    text = "default/b: holds card GPU-0 of node n, which pods use beyond its size: 12,000 of 8,000 MiB and 120 of 100 %"
    assert text in said.stderr
