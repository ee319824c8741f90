"""Limits of the source: short functions and files, a class name for one thing, a constant's name for one value.

Exceptions are named with a reason. They may shrink and go, not grow: an exception that is no longer needed fails too.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent / "src" / "dovetail"
MAX_FUNCTION_LINES = 40  # without the docstring
MAX_FILE_LINES = 400
MARGIN = 40  # lines by which a file that is an exception may grow before somebody must split it

COMMAND_OPTIONS = "a command: a parameter for each option, handed on"
PARTS_OF_SERVICE = "puts the parts of the live scheduler together, one statement each"
FUNCTIONS = {  # "file function": (lines, why)
    "cli/commands/doctor.py doctor": (43, COMMAND_OPTIONS),
    "kube/conversion/requests.py pod_from": (48, "one argument for each field of a pod"),
    "kube/live/service.py LiveScheduler.__init__": (47, PARTS_OF_SERVICE),
    "kube/live/service.py LiveScheduler._put_together": (51, PARTS_OF_SERVICE),
    "policies/device_topology_aware.py choose": (53, "a kernel: numba compiles it as one loop over sets of cards"),
}
FILES = {  # file: (lines, why)
    "engine/ledger/ledger.py": (507, "the only mutable state: nodes, pods and transactions share its invariants"),
}
API_FORM = "the API's form (kube/objects) and the model's form of one thing"
CLASSES = {
    **dict.fromkeys(("Container", "Node", "Pod", "Requirement", "StorageClass", "Taint", "Toleration"), API_FORM),
    "Volume": API_FORM,
    "LabelSelector": "of pods with lists, of volumes with tuples: their terms are kept as keys",
    "PreferenceWeights": "the configuration's form and the model's form of one thing",
}
CONSTANTS = {
    "POLICY": "a row of the table of policies, one in each file of them",
}


def modules() -> Iterator[tuple[str, ast.Module, int]]:
    """Path below src/dovetail, syntax, lines."""
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield path.relative_to(ROOT).as_posix(), ast.parse(text), len(text.splitlines())


def functions(body: list[ast.stmt], inside: str = "") -> Iterator[tuple[str, int]]:
    """Name and lines of each function, those in classes and in functions too."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body, f"{inside}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{inside}{node.name}", _lines(node)
            yield from functions(node.body, f"{inside}{node.name}.")


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    said = (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(node, clean=False) is not None else 0
    return (node.end_lineno or 0) - node.lineno + 1 - said


def too_long(found: Mapping[str, int], limit: int, allowed: Mapping[str, tuple[int, str]], margin: int) -> list[str]:
    wrong = []
    for name, lines in found.items():
        most = allowed[name][0] + margin if name in allowed else limit
        if lines > most:
            wrong.append(f"{name} has {lines} lines; {most} are allowed")
        if name in allowed and lines <= limit:
            wrong.append(f"{name} is no exception any more: take it off the list")
    return wrong + [f"{name} is gone: take it off the list" for name in allowed if name not in found]


def test_functions_are_short() -> None:
    found = {f"{path} {name}": lines for path, tree, _ in modules() for name, lines in functions(tree.body)}
    assert len(found) > 1_000
    assert too_long(found, MAX_FUNCTION_LINES, FUNCTIONS, margin=0) == []


def test_files_are_short() -> None:
    assert too_long({path: lines for path, _, lines in modules()}, MAX_FILE_LINES, FILES, MARGIN) == []


def test_a_class_name_stands_for_one_thing() -> None:
    where: dict[str, list[str]] = {}
    for path, tree, _ in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(path)
    shared = {name: paths for name, paths in where.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in CLASSES} == {}, "rename one of them"
    assert sorted(CLASSES.keys() - shared) == [], "stand for one thing: take them off the list"


def constants() -> dict[str, dict[str, Any]]:
    """Name -> module -> value, of public names in capitals that are given a value at the top of a module."""
    found: dict[str, dict[str, Any]] = {}
    for path, tree, _ in modules():
        names = [name for node in tree.body for name in _assigned(node)]
        if not names or path.endswith("__main__.py"):
            continue
        dotted = "dovetail." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        module = importlib.import_module(dotted.removesuffix(".__init__"))
        for name in names:
            found.setdefault(name, {})[path] = getattr(module, name)
    return found


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    flat = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    names = [part.id for part in flat if isinstance(part, ast.Name)]
    return [name for name in names if name.isupper() and len(name) > 1 and not name.startswith("_")]


def test_a_constant_of_one_name_has_one_value() -> None:
    found = constants()
    assert len(found) > 500
    differ = {
        name: sorted(values)
        for name, values in found.items()
        if any(not _same(first, second) for first, second in zip(values.values(), [*values.values()][1:], strict=False))
    }
    assert {name: paths for name, paths in differ.items() if name not in CONSTANTS} == {}, "rename one of them"
    assert sorted(CONSTANTS.keys() - differ) == [], "have one value: take them off the list"


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and bool(first == second)
