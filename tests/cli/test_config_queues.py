"""Queues in the configuration file: amounts as in manifests, and errors that name the field and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import config
from dovetail.model.rights import Queue

HEAD = "apiVersion: dovetail.dev/v1\nkind: Config\nqueues:\n"


def read(folder: Path, text: str) -> tuple[Queue, ...]:
    path = folder / "dovetail.yaml"
    path.write_text(HEAD + text, encoding="utf-8")
    return config.queues(config.load(path), str(path))


def test_all_fields(tmp_path: Path) -> None:
    """4 cards are 4,000 milli; 64Gi are 65,536 MiB; 150 per cent of a card are 1,500 milli; so are 1.5 CPUs."""
    dept, team = read(
        tmp_path,
        """
- name: team-a
  parent: research
  namespaces: [a, b]
  arithmetic: koordinator
  guarantee: {gpus: 4, gpus/A100: 0.5, cpu: 1.5, memory: 64Gi, gpu-memory/T4: 64Gi, gpu-compute: 150}
  ceiling: {gpus: "6", gpu-memory: 8000}
  reserved: {gpus: 1}
  weight: 3
  lends: false
  priority: 2
  preemptAfterSeconds: 60
  reclaimAfterSeconds: 30
- {name: research, ceiling: {gpus: 8}, weight: {gpus: 2}}
""",
    )
    assert (dept.name, dept.arithmetic, dept.weight) == ("research", "capacity", {"gpus": 2})
    assert team == Queue(
        "team-a",
        "koordinator",
        "research",
        ("a", "b"),
        {
            "gpus": 4000,
            "gpus/A100": 500,
            "cpu": 1500,
            "memory": 64 * 2**30,
            "gpu-memory/T4": 65_536,
            "gpu-compute": 1500,
        },
        {"gpus": 6000, "gpu-memory": 8000},
        dict.fromkeys(["cpu", "gpu-compute", "gpu-memory", "gpu-memory/T4", "gpus", "gpus/A100", "memory"], 3),
        False,
        2,
        0.0,
        60.0,
        30.0,
        {"gpus": 1000},
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {}\n", "queues[0]"),
        ("- {name: ''}\n", "name: '' is no name"),
        ("- {name: a/b}\n", "without slashes"),
        ("- {name: a, colour: red}\n", "unknown field `colour`"),
        ("- {name: a}\n- {name: a}\n", "queues[1] (a): name: there is another queue of this name; rename one"),
        ("- {name: a, arithmetic: kay}\n", "arithmetic: 'kay' is not known; did you mean 'kai'?"),
        ("- {name: a, arithmetic: fifo}\n", "there is capacity, koordinator, kai, drf, kueue, volcano"),
        (
            "- {name: a, guarantee: {gpus: 4x}}\n",
            "(a): guarantee.gpus: '4x' is not a quantity; write a number such as 2",
        ),
        ("- {name: a, ceiling: {cpu: -1}}\n", "ceiling.cpu: -1 is negative; write 0 or more, or leave it out"),
        ("- {name: a, ceiling: {nvidia.com/gpu: 1}}\n", "write gpus, gpu-memory, gpu-compute"),
        ("- {name: a, ceiling: {gpus/: 1}}\n", "names no GPU model; write gpus, or gpus/A100"),
        ("- {name: a, weight: {nvidia.com/gpu: 1}}\n", "weight.nvidia.com/gpu: write gpus"),
        ("- {name: a, weight: 2}\n", "weight: write resources, such as {gpus: 2}"),
        ("- {name: a, weight: -2}\n", "weight"),
        ("- {name: a, guarantee: {gpus: 2}, ceiling: {gpus: 1}}\n", "ceiling.gpus: is less than the guarantee"),
        (
            "- {name: team}\n- {name: b, parent: taem}\n",
            "queue b: parent: there is no queue 'taem'; did you mean 'team'?",
        ),
        ("- {name: a, parent: b}\n- {name: b, parent: a}\n", "the queue is above itself"),
        (
            "- {name: a, namespaces: [x]}\n- {name: b, namespaces: [x]}\n",
            "namespaces: 'x' is in queue a too; remove one",
        ),
        (
            "- {name: a, guarantee: {gpus: 1}}\n- {name: b, parent: a, guarantee: {gpus: 2}}\n",
            "queue a: guarantee.gpus: its queues have more guaranteed than it has",
        ),
        (
            "- {name: a}\n- {name: b, parent: a}\n- {name: c, parent: a, arithmetic: drf}\n",
            "b divides by capacity, c by drf; queues with one parent need one arithmetic",
        ),
    ],
)
def test_errors_name_the_field_and_the_fix(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(config.ConfigError) as error:
        read(tmp_path, text)
    assert says in str(error.value)
    assert str(tmp_path / "dovetail.yaml") in str(error.value)
