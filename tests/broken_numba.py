"""Processes in which numba does not work: folders for PYTHONPATH whose `sitecustomize` Python imports at its start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ABSENT = """
import importlib.abc, importlib.metadata, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
found = importlib.metadata.version

def version(name):
    if name == "numba":
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)

importlib.metadata.version = version
"""
NOT_COMPILING = """
import numba.core.dispatcher

def compile(self, signature):
    raise RuntimeError("LLVM ERROR: this processor is not supported\\nand more of it")

numba.core.dispatcher.Dispatcher.compile = compile
"""
CRASHING = """
import os, numba.core.dispatcher
numba.core.dispatcher.Dispatcher.compile = lambda self, signature: os._exit(132)
"""
SAID = {
    ABSENT: "ModuleNotFoundError: No module named 'numba'",
    NOT_COMPILING: "RuntimeError: LLVM ERROR: this processor is not supported",
}


def path_of(breakage: str, folder: Path) -> str:
    """PYTHONPATH for processes in which numba is broken this way."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(breakage)
    return os.pathsep.join((str(folder), *filter(None, sys.path)))


def run(breakage: str, folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments. Kernels that other runs have compiled are not found."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA")}
    return subprocess.run(
        [sys.executable, *command],
        env={
            **inherited,
            "DOVETAIL_CACHE_DIR": str(folder / "cache"),
            "PYTHONPATH": path_of(breakage, folder),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
