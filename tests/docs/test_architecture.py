"""docs/architecture.md is true: the files and functions of its walks exist, and commands call them."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from click.testing import CliRunner

import dovetail
from dovetail.cli.main import cli
from dovetail.engine.kernel.build import builder
from dovetail.kube.live.binder import Fate
from tests.builders import ask, cluster, group, node, pod
from tests.kube.live.stage import Stage, bound, gpu_node, waiting

ROOT = Path(__file__).parent.parent.parent
SOURCE = Path(dovetail.__file__).parent
PAGES = ("architecture.md", "architecture-reference.md")
STEP = re.compile(r"`([\w/]+\.py): ([\w.]+)\(\)`")  # `kube/live/driver.py: Driver.run()`
FILE = re.compile(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)[`:]")  # `engine/queue.py`, `engine/kernel/`
NOT_YET = {"node/", "web/"}


def text(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


@cache
def functions(path: Path) -> set[str]:
    """Names of functions and of methods, the latter as Class.method."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found: set[str] = set()
    for top in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(top, kinds):
            found.add(top.name)
        elif isinstance(top, ast.ClassDef):
            found |= {f"{top.name}.{inner.name}" for inner in top.body if isinstance(inner, kinds)}
    return found


STEPS = sorted({step for page in PAGES for step in STEP.findall(text(page))})


def test_the_walks_name_functions() -> None:
    walks = [part for part in re.split(r"(?m)^## ", text(PAGES[0])) if re.match(r"A (pod|trace) ", part)]
    assert len(walks) == 3
    assert all(len(STEP.findall(walk)) >= 10 for walk in walks)


@pytest.mark.parametrize(("file", "function"), STEPS, ids=[f"{file}: {function}" for file, function in STEPS])
def test_functions_exist(file: str, function: str) -> None:
    assert (SOURCE / file).is_file()
    assert function in functions(SOURCE / file)


@contextmanager
def functions_called() -> Iterator[set[tuple[str, str]]]:
    """(file, function or Class.method) of the source that are called meanwhile."""
    found: set[tuple[str, str]] = set()

    def on_event(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{SOURCE}/"):
            found.add((str(Path(code.co_filename).relative_to(SOURCE)), code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield found
    finally:
        sys.setprofile(before)


def run(command: str) -> None:
    result = CliRunner().invoke(cli, shlex.split(command), prog_name="dovetail")
    assert result.exit_code in (0, 3), result.output


def walk(title: str) -> set[tuple[str, str]]:
    return set(STEP.findall(text(PAGES[0]).split(f"\n## {title}\n")[1].split("\n## ")[0]))


def test_a_plan_calls_every_function_of_its_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pod that is placed, one that stays pending, and the JSON; the kernel is built anew."""
    monkeypatch.chdir(ROOT)
    builder.cache_clear()
    demo = "plan -f examples/demo/cluster.yaml -f examples/demo/demo-a.yaml"
    with functions_called() as called:
        run(demo)
        run(f"{demo} -o json")
        run("plan -f examples/what-if")
    assert walk("A pod from YAML to the table") - called == set()


def test_a_replay_calls_every_function_of_its_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of a file and generated ones, in both modes."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("name,gpus,duration\na,1,60\nb,2,60\n", encoding="utf-8")
    Path("nodes.csv").write_text("name,cpu_milli,memory_mib,gpus,model\nn,64000,262144,4,T4\n", encoding="utf-8")
    files = "replay --nodes nodes.csv --pods jobs.csv --policy best-fit --engine interpreted"
    drawn = "replay --jobs 20 --cluster 2xT4:4 --policy best-fit --engine interpreted"
    with functions_called() as called:
        run(f"{files} --report a.html")
        run(f"{drawn} --mode time")
    assert walk("A trace to its report") - called == set()


@pytest.mark.asyncio
async def test_a_watched_pod_calls_the_functions_of_its_walk_between_watch_and_binder() -> None:
    """The parts that speak to the API server are left out: `Stage` has stand-ins for them."""
    with functions_called() as called:
        async with Stage() as stage:
            stage.nodes(gpu_node())
            stage.pods(waiting("a"), waiting("b"))  # one card: the second waits
            await stage.settle()
            (bind,) = stage.hands.binds
            assert stage.driver.outcomes.objection(bind, waited=False) == ""
            stage.answer(Fate.BOUND, bind)
            stage.pods(bound("a", bind))
            await stage.settle()
    speaks = {f"kube/live/{name}.py" for name in ("service", "sources", "binder", "binding", "tell")}
    steps = {step for step in walk("A pod from the watch to its Binding") if not step[0].startswith("kube/api/")}
    assert {step for step in steps if step[0] not in speaks} - called == set()


@pytest.mark.parametrize("page", PAGES)
def test_files_and_folders_exist(page: str) -> None:
    """Under the source, or at the root; a bare name in a table is a file of the folder that the table names."""
    named = {name for name in FILE.findall(text(page)) if "/" in name} - NOT_YET
    assert len(named) >= 10
    assert sorted(name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()) == []


def files_run_by(call: Callable[[], Any]) -> set[str]:
    """Files of the source of which `call` executes a line."""
    found: set[str] = set()

    def on_line(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "line":
            found.add(frame.f_code.co_filename)
        return on_line

    def on_call(frame: FrameType, _: str, __: object) -> Callable[..., Any] | None:
        return on_line if frame.f_code.co_filename.startswith(f"{SOURCE}/") else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return {str(Path(name).relative_to(SOURCE)) for name in found}


def listed(title: str) -> tuple[str, set[str]]:
    """The text of a section, and the files of its table."""
    section = text(PAGES[0]).split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"(?m)^\| `([\w/]+/)` \| (.+) \|$", section)
    return section, {f"{folder}{name}" for folder, names in rows for name in re.findall(r"`(\w+\.py)`", names)}


def files_of_a_second_pod(mode: str, replica: bool) -> set[str]:
    """Ten nodes of four cards, the default policies; the second of two replicas, or of two equal pods."""
    scheduler = cluster(*(node(f"n{n}", gpus=4) for n in range(10)), mode=mode)
    first, equal = (pod(name, ask(1, 1000), cpu=1000) for name in "ab")
    assert scheduler.place([group(first)])[0].placed
    second = group(first.named("b") if replica else equal)
    return files_run_by(lambda: scheduler.place([second])[0].node)


def test_the_files_that_place_a_second_pod() -> None:
    section, named = listed("Files that place a second pod of a kind")
    run = files_of_a_second_pod("interpreted", replica=True)
    assert named == run
    assert f"executes lines of {len(run)} files" in section
    kernel = {name for name in run if name.startswith(("engine/kernel/", "policies/"))}
    compiled = files_of_a_second_pod("compiled", replica=True)
    assert compiled == run - kernel | {"engine/kernel/native.py"}
    assert f"{len(compiled)} files if the kernel is compiled" in section
    more = files_of_a_second_pod("interpreted", replica=False) - run
    assert more == {"engine/ledger/intern.py", "engine/ledger/node_rows.py", "engine/ledger/remembered.py"}
