"""Imports point one way, and the deciding half of the code base knows neither clock, chance nor I/O."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "dovetail"

# folder -> what it may know. Files at the top count as folders of their own: `config.py` stands beside cli, and
# `kernel_cache.py` says where compiled kernels are kept, which the engine must not know; `files.py` says how files of
# other people are opened, `own_folder.py` whether a folder is ours alone.
DECIDING = frozenset({"engine", "policies", "model"})
OUTSIDE = frozenset({"files", "own_folder", "kernel_cache"})  # of the layers: they touch the disk and decide nothing
MAY_KNOW: dict[str, frozenset[str]] = {
    "model": frozenset(),
    "policies": frozenset({"model"}),
    "engine": frozenset({"policies", "model"}),
    "whatif": DECIDING,
    "files": frozenset(),
    "own_folder": frozenset(),
    "kernel_cache": frozenset({"own_folder"}),
    "sim": DECIDING | OUTSIDE | {"whatif"},
    "kube": DECIDING | OUTSIDE | {"whatif"},
    "node": DECIDING | {"whatif"},
    "web": DECIDING | OUTSIDE | {"whatif", "sim", "kube", "node"},
    "config": DECIDING | {"files"},
    "__main__": frozenset({"cli"}),
    "cli": DECIDING | OUTSIDE | {"whatif", "sim", "kube", "node", "web", "config"},
}
PURE = ("model", "policies", "engine", "whatif")
CLOCK_CHANCE_AND_IO = (
    "time datetime random secrets uuid os sys io socket ssl threading multiprocessing concurrent asyncio signal "
    "logging json http urllib subprocess pathlib shutil tempfile yaml click"
)
WORLD = frozenset(CLOCK_CHANCE_AND_IO.split())


# folder inside a folder -> which of its sisters it may know. A file of `engine`, `kube` or `cli` in no folder may know
# all of them; BASE names the files that everything beside them may know.
INSIDE: dict[str, dict[str, frozenset[str]]] = {
    "engine": {
        "kernel": frozenset(),
        "ledger": frozenset({"kernel"}),
        "rights": frozenset({"kernel", "ledger"}),
        "rules": frozenset({"kernel", "ledger", "rights"}),
        "gangs": frozenset({"kernel", "ledger", "rights", "rules"}),
        "why": frozenset(
            {"kernel", "ledger", "rights", "rules", "gangs", "*"}
        ),  # * = the scheduler and what is beside it
    },
    "kube": {
        "objects": frozenset(),
        "files": frozenset({"objects"}),
        "conversion": frozenset({"objects", "files"}),
        "api": frozenset({"objects", "files"}),
        "journal": frozenset(),
        "admission": frozenset({"objects", "files", "conversion"}),
        "live": frozenset({"objects", "files", "conversion", "api", "admission", "journal"}),
        "doctor": frozenset({"objects", "files", "conversion", "api", "admission", "live", "journal"}),
        "extender": frozenset({"objects", "files", "conversion", "api", "live", "journal"}),
    },
    "cli": {"output": frozenset({"*"}), "commands": frozenset({"output", "*"})},
}
BASE = frozenset({"engine.wording", "kube.log", "kube.histogram", "cli.errors"})


def imports(source: str) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write imports in full, not relative ones"
            assert node.module is not None
            yield node.lineno, node.module
            for alias in node.names:  # `from dovetail import engine`
                yield node.lineno, f"{node.module}.{alias.name}"


def folder_of(path: Path) -> str:
    """`config.py` at the top is its own folder; `__init__.py` at the top belongs to nobody."""
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def violations(folder: str, source: str) -> list[str]:
    """What the source breaks, one sentence each."""
    broken = []
    for line, module in imports(source):
        top, *rest = module.split(".")
        if top == "dovetail" and rest and rest[0] in MAY_KNOW and rest[0] != folder:
            if rest[0] not in MAY_KNOW[folder]:
                allowed = ", ".join(sorted(MAY_KNOW[folder])) or "nobody"
                broken.append(f"line {line}: {folder} may not know {rest[0]} ({module}); it may know {allowed}")
        elif folder in PURE and top in WORLD:
            broken.append(f"line {line}: {folder} may not know {top}: time, chance and I/O are arguments here")
    return broken


def inner_violations(place: tuple[str, ...], source: str) -> list[str]:
    """What a file in `place` (`("engine", "rules")`) breaks of INSIDE; a file above all folders only may not be
    known by them."""
    top, inner = place[0], place[1] if len(place) > 1 else "*"
    sisters = INSIDE[top]
    if inner == "*":
        return [
            f"line {line}: {module} explains what {top} decided; {top} itself may not need it"
            for line, module in imports(source)
            if top == "engine" and module.startswith("dovetail.engine.why.")
        ]
    broken = []
    for line, module in imports(source):
        parts = module.split(".")
        if parts[:2] != ["dovetail", top] or len(parts) < 3 or ".".join(parts[1:3]) in BASE:
            continue
        other = parts[2] if parts[2] in sisters else "*"
        if other != inner and other not in sisters[inner]:
            broken.append(f"line {line}: {top}/{inner} may not know {module}; see INSIDE")
    return broken


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    folder = folder_of(path)
    if folder == "__init__":
        return
    assert folder in MAY_KNOW, f"{path.relative_to(ROOT)}: say in MAY_KNOW what {folder} may know"
    source = path.read_text(encoding="utf-8")
    broken = violations(folder, source)
    if folder in INSIDE and path.name != "__init__.py":
        broken += inner_violations(path.relative_to(ROOT).parts[:-1], source)
    assert not broken, f"{path.relative_to(ROOT)}:\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("model", "from dovetail.engine import ledger"),
        ("policies", "import dovetail.engine.scheduler"),
        ("engine", "from dovetail import kube"),
        ("engine", "from dovetail.whatif import plan"),
        ("whatif", "from dovetail.kube.objects.problems import Problem"),
        ("whatif", "import time"),
        ("kube", "from dovetail.sim import replay"),
        ("sim", "from dovetail.node import agent"),
        ("node", "from dovetail.kube import documents"),
        ("web", "from dovetail.cli import main"),
        ("config", "from dovetail.cli import main"),
        ("engine", "def f():\n    import time"),
        ("policies", "from random import Random"),
        ("model", "import os.path"),
        ("engine", "from json import dumps"),
    ],
)
def test_the_test_sees_a_wrong_import(folder: str, source: str) -> None:
    assert violations(folder, source)


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("engine", "import numpy\nfrom dovetail.policies.table import NODE_POLICIES"),
        ("engine", "def compiled():\n    import numba"),
        ("kube", "import os\nfrom dovetail.engine.scheduler import Scheduler"),
        ("cli", "from dovetail.config import Config\nfrom dovetail.kube.conversion.cluster import load"),
    ],
)
def test_the_test_allows_a_right_import(folder: str, source: str) -> None:
    assert not violations(folder, source)
