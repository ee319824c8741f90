"""The memory that docs/limits.md states for a cluster's size is what a scheduler takes that knows such a cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.engine.ledger.intern import MOST_REMEMBERED_BYTES
from dovetail.engine.ledger.node_rows import SWEEP_RULES_FROM
from dovetail.engine.ledger.vectors import BUDGET
from dovetail.engine.rules.default_spread import MAX_CONSTRAINT_BYTES
from dovetail.engine.rules.node_columns import MAX_NODE_FACT_BYTES
from dovetail.engine.rules.pod_counts import MOST_BYTES
from dovetail.kube.live.kernels import MOST_PAIRS
from dovetail.kube.live.reader import MOST_TEMPLATE_BYTES
from dovetail.kube.live.reasons import MAX_FINDING_BYTES
from dovetail.kube.live.tell import MOST_EVENTS
from tests.live.fuzz.run import MOST_MEMORY

ROOT = Path(__file__).parent.parent.parent.parent
MIB = 1 << 20
EVENT_BYTES = 2 << 10
NODES, PODS = 2_000, 10_000


def stated(what: str) -> float:
    """The number in the row of the page's table that begins with these words."""
    page = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {re.escape(what)}[^|]*\| ([\d.]+) [KM]iB", page, re.MULTILINE)
    assert found is not None, what
    return float(found[1])


def used(nodes: int, pods: int) -> float:
    """MiB of a process of its own: what this one has freed does not count."""
    command = [sys.executable, "-m", "tests.kube.live.footprint", str(nodes), str(pods)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, cwd=ROOT)
    knows_nodes, knows_pods, mib = done.stdout.split()
    assert (int(knows_nodes), int(knows_pods)) == (nodes, pods)
    return float(mib)


def test_the_caches_together_are_what_the_page_says() -> None:
    bounds = (
        *(MOST_TEMPLATE_BYTES, MOST_REMEMBERED_BYTES, MOST_REMEMBERED_BYTES, SWEEP_RULES_FROM, MAX_NODE_FACT_BYTES),
        *(MOST_BYTES, MAX_CONSTRAINT_BYTES, MAX_FINDING_BYTES, MOST_EVENTS * EVENT_BYTES),
    )
    assert sum(bounds) / MIB == pytest.approx(stated("all caches"), abs=1)
    assert stated("scores") == BUDGET / MIB
    assert stated("compiled kernels") == MOST_PAIRS * 2.5


def test_the_bound_of_the_fuzz_run_is_that_of_the_page() -> None:
    """Everything for a small cluster, without scores, which take 10 bytes for each node and request."""
    parts = ("the program", "connections", "all caches", "compiled kernels", "requests that joint policies")
    assert sum(map(stated, parts)) <= MOST_MEMORY


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nodes_and_pods_take_what_the_page_says() -> None:
    nothing, nodes, pods = used(1, 0), used(NODES, 0), used(NODES, PODS)
    per_node, per_pod = (nodes - nothing) * 1024 / NODES, (pods - nodes) * 1024 / PODS
    print(f"{nothing:.0f} MiB, {per_node:.1f} KiB for each node, {per_pod:.1f} KiB for each pod")
    assert per_node <= stated("each node")
    assert per_pod <= stated("each pod")
