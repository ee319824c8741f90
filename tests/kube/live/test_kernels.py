"""Kernels are made outside the loop; what becomes of pods whose policies are not compiled, and how much of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from dovetail.engine.kernel.build import Pair
from dovetail.engine.scheduler import Scheduler
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live import kernels as under_test
from dovetail.kube.live.kernels import COUNTED_SECONDS, FEW_NODES, MOST_ADMITTED, WORTH_COMPILING, Kernels, Make
from dovetail.kube.live.warm import NotCompiled, Workshop, pairs_of, read, title
from dovetail.kube.log import Level
from dovetail.model.pod import Group, Pod, Profile
from tests.broken_numba import ABSENT, CRASHING, NOT_COMPILING, SAID, path_of
from tests.broken_numba import run as run_broken

DEFAULT, OTHER, FGD = Profile(), Profile("gpu-packing", ("numa", "binpack")), Profile("fgd")
LARGE = FEW_NODES + 1


class Bench:
    """A scheduler and its kernels, which are made when the test says so."""

    def __init__(self, most: int = 32, broken: str = "", make: Make | None = None) -> None:
        self.scheduler = Scheduler(mode="interpreted")
        self.used: list[Profile] = []
        self.scheduler.use_compiled = self.use  # type: ignore[method-assign]
        self.said: list[str] = []
        self.asked: list[list[Pair]] = []
        self.gate = asyncio.Event()
        self.broken = broken
        self.now = 0.0
        self.kernels = Kernels(self.scheduler, make or self.make, log=self.log, most=most, now=lambda: self.now)
        self.again: list[str] = []

    def use(self, profile: Profile) -> None:
        self.used.append(profile)
        self.scheduler.placer._compiled.add((profile.node, profile.device))

    def log(self, text: str, level: Level = Level.INFO, /, **fields: object) -> None:
        self.said.append(text)

    async def make(self, pairs: Sequence[Pair]) -> float:
        self.asked.append(list(pairs))
        await self.gate.wait()
        if self.broken:
            raise NotCompiled(self.broken)
        return 2.0

    def admit(self, profile: Profile, nodes: int, name: str = "p") -> str:
        pod = Pod("default", name, name, profile=profile)
        return self.kernels.admit(Group(name, (pod,)), nodes, lambda: self.again.append(name))


def run(story: Callable[[Bench], Awaitable[None]], *settings: Settings, seconds: float = 30.0, **options: Any) -> None:
    async def play() -> None:
        bench = Bench(**options)
        bench.kernels.configure(pairs_of(settings))
        working = asyncio.create_task(bench.kernels.run())
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(seconds):
                await story(bench)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(play())


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0)


def test_configured_policies_are_made_together_and_first() -> None:
    async def story(bench: Bench) -> None:
        await until(lambda: len(bench.asked) == 1)
        assert {title(pair) for pair in bench.asked[0]} >= {"binpack × spread", "gpu-packing × numa,binpack"}
        assert bench.kernels.counts.compiling == len(bench.asked[0])
        bench.gate.set()
        await bench.kernels.settled(10.0)
        assert bench.kernels.counts.compiled == len(bench.asked[0])
        assert (bench.kernels.counts.compiling, bench.kernels.counts.seconds) == (0, 2.0)
        assert bench.admit(OTHER, LARGE) == ""

    run(story, Settings(profile=DEFAULT), Settings(profile=OTHER))


def test_a_small_cluster_is_served_while_compiling_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "WORTH_COMPILING", 1)

    async def story(bench: Bench) -> None:
        assert bench.admit(OTHER, FEW_NODES) == ""
        await until(lambda: bench.asked == [[("gpu-packing", ("numa", "binpack"))]])
        assert bench.admit(OTHER, FEW_NODES) == ""
        assert bench.used == []
        bench.gate.set()
        await until(lambda: bench.used == [OTHER])
        assert bench.again == []

    run(story)


def test_a_small_cluster_compiles_policies_that_are_used_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 100th decision pays for compiling. Policies that few pods name cost no compiler and no memory."""
    monkeypatch.setattr(under_test, "MAX_COUNTED_PAIRS", 2)

    async def story(bench: Bench) -> None:
        for _ in range(WORTH_COMPILING - 1):
            assert bench.admit(OTHER, FEW_NODES) == ""
        assert bench.kernels._queue == {}
        assert bench.admit(FGD, FEW_NODES) == ""
        assert bench.admit(DEFAULT, FEW_NODES) == ""  # a third pair: the counts of two begin anew
        assert dict(bench.kernels._decided) == {("binpack", ("spread",)): 1}
        for _ in range(WORTH_COMPILING):
            assert bench.admit(OTHER, FEW_NODES) == ""
        await until(lambda: bench.asked == [[("gpu-packing", ("numa", "binpack"))]])
        assert dict(bench.kernels._decided) == {("binpack", ("spread",)): 1}

    run(story)


def test_policies_that_few_pods_name_are_never_compiled_however_long_the_process_runs() -> None:
    """Counted from the start, one pair after the other was loaded over hours: 2.5 MiB each, for good."""

    async def story(bench: Bench) -> None:
        for _ in range(20 * WORTH_COMPILING):
            bench.now += 1.1 * COUNTED_SECONDS / WORTH_COMPILING
            assert bench.admit(OTHER, FEW_NODES) == ""
        assert bench.kernels._queue == {}
        for _ in range(2 * WORTH_COMPILING):  # twice as often
            bench.now += 0.5 * COUNTED_SECONDS / WORTH_COMPILING
            assert bench.admit(OTHER, FEW_NODES) == ""
        await until(lambda: bench.asked == [[("gpu-packing", ("numa", "binpack"))]])

    run(story)


def test_on_a_large_cluster_the_pod_waits_for_its_kernel_and_others_do_not() -> None:
    async def story(bench: Bench) -> None:
        bench.use(DEFAULT)
        said = bench.admit(OTHER, LARGE, "late")
        assert said == "its policies (gpu-packing × numa,binpack) are being compiled, which takes some seconds"
        assert bench.admit(DEFAULT, LARGE, "other") == ""
        await until(lambda: len(bench.asked) == 1)
        bench.gate.set()
        await until(lambda: bench.again == ["late"])
        assert bench.admit(OTHER, LARGE, "late") == ""
        assert len(bench.asked) == 1

    run(story)


def test_joint_policies_have_one_kernel_whatever_their_device_policy() -> None:
    async def story(bench: Bench) -> None:
        bench.gate.set()
        bench.admit(FGD, LARGE)
        await until(lambda: len(bench.used) == 1)
        assert bench.admit(Profile("fgd", ("binpack",)), LARGE) == ""
        assert bench.asked == [[("fgd", ("first-fit",))]]

    run(story)


def test_tenants_cannot_have_more_than_so_many_pairs_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third pair of two: interpreted; on a large cluster one decision every INTERPRETED_PAUSE seconds, in order."""
    monkeypatch.setattr(under_test, "INTERPRETED_PAUSE", 0.01)
    monkeypatch.setattr(under_test, "WORTH_COMPILING", 1)

    async def story(bench: Bench) -> None:
        bench.gate.set()
        for profile in (DEFAULT, OTHER):
            bench.admit(profile, FEW_NODES)
        await until(lambda: len(bench.used) == 2)
        assert bench.admit(FGD, FEW_NODES) == ""
        assert "one every" in bench.admit(FGD, LARGE, "one")
        assert "one every" in bench.admit(FGD, LARGE, "two")
        await until(lambda: bench.again == ["one"])
        assert bench.admit(FGD, LARGE, "one") == ""
        assert "one every" in bench.admit(FGD, LARGE, "three")
        await until(lambda: bench.again == ["one", "two", "three"])
        assert len(bench.asked) == 2
        assert [text for text in bench.said if "not compiled, as 2 pairs" in text] == [bench.said[-1]]

    run(story, most=2)


def gang(name: str, *profiles: Profile) -> Group:
    pods = tuple(Pod("default", f"{name}{n}", f"{name}{n}", profile=one) for n, one in enumerate(profiles))
    return Group(name, pods, len(pods))


@pytest.mark.parametrize("profiles", [(OTHER, OTHER, OTHER), (OTHER, FGD, OTHER)], ids=["one pair", "two pairs"])
def test_a_gang_needs_one_turn_whatever_its_size(profiles: Sequence[Profile], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "INTERPRETED_PAUSE", 0.01)
    monkeypatch.setattr(under_test, "WORTH_COMPILING", 1)

    async def story(bench: Bench) -> None:
        bench.gate.set()
        bench.admit(DEFAULT, FEW_NODES)
        await until(lambda: bench.used == [DEFAULT])
        again: list[str] = []
        assert "one every" in bench.kernels.admit(gang("g", *profiles), LARGE, lambda: again.append("g"))
        await until(lambda: again == ["g"])
        assert bench.kernels.admit(gang("g", *profiles), LARGE, lambda: again.append("g")) == ""
        assert "one every" in bench.kernels.admit(gang("g", *profiles), LARGE, lambda: again.append("g"))

    run(story, most=1)


def test_a_turn_is_kept_while_the_next_groups_have_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may be busy for longer than a turn; turns that no group uses are few."""
    monkeypatch.setattr(under_test, "INTERPRETED_PAUSE", 0.01)
    monkeypatch.setattr(under_test, "WORTH_COMPILING", 1)

    async def story(bench: Bench) -> None:
        bench.gate.set()
        bench.admit(DEFAULT, FEW_NODES)
        await until(lambda: bench.used == [DEFAULT])
        names = [f"p{n}" for n in range(MOST_ADMITTED + 1)]
        for name in names:
            assert "one every" in bench.admit(FGD, LARGE, name)
        await until(lambda: bench.again == names)
        assert [bench.admit(FGD, LARGE, name) == "" for name in names] == [False, *[True] * MOST_ADMITTED]

    run(story, most=1)


def test_where_nothing_can_be_compiled_everything_is_interpreted_with_one_warning() -> None:
    async def story(bench: Bench) -> None:
        assert bench.admit(DEFAULT, LARGE, "one") != ""
        assert bench.admit(OTHER, LARGE, "two") != ""
        bench.gate.set()
        await until(lambda: sorted(bench.again) == ["one", "two"])
        for profile in (DEFAULT, OTHER, FGD):
            assert bench.admit(profile, LARGE) == ""
        assert bench.said == ["kernels cannot be compiled here, all policies are interpreted: no numba"]
        assert bench.kernels.counts.failed == 1

    run(story, broken="no numba")


def test_a_pair_that_fails_is_interpreted_and_the_others_stay_compiled() -> None:
    async def story(bench: Bench) -> None:
        bench.gate.set()
        bench.admit(DEFAULT, LARGE)
        await until(lambda: bench.used == [DEFAULT])
        bench.broken = "killed"
        bench.admit(OTHER, LARGE, "late")
        await until(lambda: bench.again == ["p", "late"])
        assert "one every" in bench.admit(OTHER, LARGE, "late")
        assert bench.said[-1] == "kernels not compiled, interpreted: gpu-packing × numa,binpack: killed"

    run(story)


def test_no_kernels_are_made_where_people_asked_for_none() -> None:
    kernels = Kernels(Scheduler(mode="interpreted"), None, log=lambda *args, **fields: None)
    group = Group("p", (Pod("default", "p", "p", profile=OTHER),))
    assert kernels.admit(group, LARGE, lambda: None) == ""


def made(pairs: Sequence[Pair], on_disk: bool = True) -> Coroutine[Any, Any, float]:
    return Workshop(on_disk).make(pairs)


@pytest.mark.slow
def test_a_child_compiles_and_the_scheduler_loads(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The second process finds the kernels of the first: nothing is compiled. Both use a folder of their own."""
    script = (
        "import asyncio, sys\n"
        "from dovetail import kernel_cache\n"
        "assert kernel_cache.prepare()\n"
        "from dovetail.kube.live.warm import Workshop, read\n"
        "print(asyncio.run(Workshop(True).make([read('first-fit:first-fit')])))\n"
        "from dovetail.engine.kernel.build import builder\n"
        "from dovetail.model.pod import Profile\n"
        "kernel = builder(True, True).kernel(Profile('first-fit', ('first-fit',)))\n"
        "doors = (kernel.place_groups, kernel.place_lone, kernel.which_fit, kernel.survey)\n"
        "print(sum(sum(door.args[0].stats.cache_misses.values()) for door in doors))\n"
    )
    took, misses = zip(*(in_process(script, tmp_path / "home", {}) for _ in range(2)), strict=True)
    assert took[0] > 1
    assert took[1] == 0
    assert misses == (0, 0)
    # A mark without its kernel, as an installation in another folder leaves it: compiled in a child, too.
    index = next((tmp_path / "home").rglob("*place_entry*.nbi"))
    index.rename(tmp_path / index.name)
    took_again, misses_again = in_process(script, tmp_path / "home", {})
    assert took_again > 1
    assert misses_again == 0
    # An image brings them along: read-only, and the folder that can be written to is empty.
    shipped = {"DOVETAIL_KERNELS": str(tmp_path / "home")}
    assert in_process(script, tmp_path / "other", shipped) == (0, 0)
    # Code for another processor is not found, and made.
    took_again, misses_again = in_process(script, tmp_path / "third", {**shipped, "NUMBA_CPU_NAME": "generic"})
    assert took_again > 1
    assert misses_again == 0


def in_process(script: str, home: Any, environment: dict[str, str]) -> tuple[float, int]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**inherited, "DOVETAIL_CACHE_DIR": str(home), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    took, misses = done.stdout.split()
    return float(took), int(misses)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_scheduler_that_is_killed_leaves_no_compiler_behind(tmp_path: Path) -> None:
    """kill -9 gives it no time to end its child, which compiled on for up to ten minutes."""
    script = (
        "import asyncio\n"
        "from dovetail.kube.live.warm import _in_child\n"
        "asyncio.run(_in_child(['first-fit:first-fit']))\n"
    )
    environment = {**os.environ, "DOVETAIL_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as parent:
        try:
            child = _soon(lambda: children_of(parent.pid))[0]
            _soon(lambda: "dovetail.kube.live.warm" in Path(f"/proc/{child}/cmdline").read_text())
        finally:
            parent.kill()
    _soon(lambda: has_ended(child))


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"  # its new parent has not asked for its exit code yet


def _soon(true: Callable[[], Any]) -> Any:
    for _ in range(600):
        if found := true():
            return found
        time.sleep(0.05)
    raise AssertionError("not within 30 s")


def test_a_process_that_cannot_compile_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here: the child knows no such policy."""
    monkeypatch.setattr(Workshop, "_missing", lambda self, pairs: pairs)
    with pytest.raises(NotCompiled, match="no node policy 'nonsense'"):
        asyncio.run(made([("nonsense", ("spread",))]))


@pytest.mark.parametrize(
    ("breakage", "why"),
    [
        (ABSENT, "code 1: ModuleNotFoundError: No module named 'numba'"),
        (NOT_COMPILING, "code 1: RuntimeError: LLVM ERROR: this processor is not supported"),
        (CRASHING, "code 132"),
    ],
    ids=["absent", "does not compile", "crashes"],
)
def test_where_the_child_fails_the_scheduler_interprets_with_one_warning(
    breakage: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", path_of(breakage, tmp_path / "broken"))
    monkeypatch.setattr(Workshop, "_missing", lambda self, pairs: pairs)

    async def story(bench: Bench) -> None:
        await bench.kernels.settled(300.0)
        for profile in (DEFAULT, OTHER, FGD):
            assert bench.admit(profile, LARGE) == ""
        said = f"RuntimeError: the compiling process ended with {why}"
        assert bench.said == [f"kernels cannot be compiled here, all policies are interpreted: {said}"]

    run(story, Settings(), seconds=310.0, make=Workshop(True).make)


def test_a_scheduler_lives_without_numba(tmp_path: Path) -> None:
    """In a process without numba: its folder is prepared, kernels are asked for, a pod is placed."""
    script = (
        "import asyncio\n"
        "from dovetail import kernel_cache\n"
        "from dovetail.kube.live.kernels import Kernels\n"
        "from dovetail.kube.live.warm import Workshop, pairs_of\n"
        "from dovetail.kube.conversion.settings import Settings\n"
        "from tests.builders import ask, cluster, node, pod\n"
        "from dovetail.model.pod import Group\n"
        "async def main():\n"
        "    scheduler = cluster(node('a', gpus=2), mode='interpreted')\n"
        "    make = Workshop(kernel_cache.prepare_for_now()).make\n"
        "    kernels = Kernels(scheduler, make, log=lambda text, *level, **fields: print(text))\n"
        "    kernels.configure(pairs_of([Settings()]))\n"
        "    working = asyncio.create_task(kernels.run())\n"
        "    await kernels.settled(60.0)\n"
        "    group = Group('p', (pod('p', ask(1, 1000)),))\n"
        "    assert kernels.admit(group, 5_000, lambda: None) == ''\n"
        "    print(scheduler.place([group])[0].node)\n"
        "    working.cancel()\n"
        "asyncio.run(main())\n"
    )
    done = run_broken(ABSENT, tmp_path, "-c", script)
    assert done.returncode == 0, done.stderr
    warning = f"kernels cannot be compiled here, all policies are interpreted: {SAID[ABSENT]}"
    assert done.stdout.splitlines() == [warning, "a"]
    assert done.stderr == ""


def test_without_a_folder_nothing_is_compiled() -> None:
    with pytest.raises(NotCompiled, match="set DOVETAIL_CACHE_DIR"):
        asyncio.run(made([("binpack", ("spread",))], on_disk=False))


@pytest.mark.parametrize("text", ["nonsense", "binpack:nonsense", "binpack:spread,,binpack", ""])
def test_pairs_that_name_no_policies_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no (node|GPU) policy"):
        read(text)
