"""Wheels, virtual environments and the image's steps, without a network.

What an installed dovetail needs comes from the packages of the environment that runs the tests: a folder of links to
exactly the declared dependencies, and no others, stands in for the package index.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NAME = re.compile(r"[A-Za-z0-9._-]+")
EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None, code: int = 0) -> str:
    """stdout and stderr of a command that must end with this code."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == code, f"{shlex.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def build(source: Path, target: Path, kind: str) -> Path:
    """The wheel or sdist of a source tree, by the backend that pyproject.toml names."""
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target, cwd=source)
    (made,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def needs(requirements: Iterable[str], extras: frozenset[str] = frozenset()) -> Iterator[str]:
    """Names of the requirements that hold for these extras. Other markers are taken to hold."""
    for requirement in requirements:
        name, _, marker = requirement.partition(";")
        wanted = EXTRA.search(marker)
        if wanted is None or wanted[1] in extras:
            yield NAME.match(name.strip())[0].lower().replace("_", "-")  # type: ignore[index]


def closure(names: Iterable[str]) -> set[str]:
    """These distributions and all that they need, as far as they are installed here."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in found:
            continue
        try:
            requires = distribution(name).requires or ()
        except PackageNotFoundError:  # needed on other systems or by other versions of Python
            continue
        found.add(name)
        left += needs(requires)
    return found


def link_packages(names: Iterable[str], folder: Path) -> Path:
    """A folder that holds these distributions of the running environment, as links."""
    folder.mkdir()
    for name in names:
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return folder


def environment(folder: Path, packages: Path) -> Path:
    """A new virtual environment that sees these packages; its bin folder."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "linked.pth").write_text(f"{packages}\n", encoding="utf-8")
    return folder / "bin"


def clean_env(**more: str | Path) -> dict[str, str]:
    """Ours without what would lead an installed dovetail back to this source tree."""
    ours = ("PYTHON", "PIP_", "VIRTUAL_ENV", "NUMBA_", "DOVETAIL_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return kept | {key: str(value) for key, value in more.items()}


class Image:
    """A Dockerfile's first stage, carried out in folders: its COPY, ENV and RUN lines in their order."""

    def __init__(self, dockerfile: Path, room: Path) -> None:
        text = re.sub(r"\\\n\s*", "", dockerfile.read_text(encoding="utf-8"))
        self.lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        self.source, self.room = dockerfile.parent, room
        self.folder = room / "src"

    def here(self, text: str) -> str:
        """The image's absolute paths, moved into our room."""
        return re.sub(r"(?<![\w.])/(src|opt|var)\b", lambda found: f"{self.room}/{found[1]}", text)

    def stage(self, number: int) -> list[tuple[str, str]]:
        starts = [index for index, line in enumerate(self.lines) if line.startswith("FROM ")]
        end = [*starts[1:], len(self.lines)][number]
        pairs = [line.partition(" ") for line in self.lines[starts[number] + 1 : end]]
        return [(word, rest.strip()) for word, _, rest in pairs]

    def variables(self, stage: int) -> dict[str, str]:
        """What the ENV lines of a stage set."""
        lines = [rest for word, rest in self.stage(stage) if word == "ENV"]
        return dict(pair.split("=", 1) for line in lines for pair in shlex.split(self.here(line)))

    def carry_out(self, env: Mapping[str, str]) -> None:
        self.folder.mkdir(parents=True)
        for word, rest in self.stage(0):
            if word == "COPY":
                *sources, target = rest.split()
                for source in sources:
                    self._copy(source, target)
            elif word == "RUN":
                run("sh", "-ec", self.here(rest), cwd=self.folder, env={**env, **self.variables(0)})

    def _copy(self, source: str, target: str) -> None:
        into = self.folder / target
        if (self.source / source).is_dir():
            shutil.copytree(self.source / source, into, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            into.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.source / source, into)
