"""Compiles kernels in a child process, which leaves them on disk, so that no pod waits for the compiler.

Compiling in a thread stops the loop for up to 0.6 s at a time, because numba holds the interpreter's lock while it
infers types. Kernels on disk are loaded in a thread: 0.3 s, in which the loop stops for at most 20 ms.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic

from dovetail import kernel_cache
from dovetail.engine.kernel.build import Pair, builder, pair_of
from dovetail.kube.conversion.settings import Settings
from dovetail.model.not_compiled import why
from dovetail.model.pod import Profile
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

LONGEST_COMPILE = 600.0  # seconds; on an idle machine it takes ten
NICE = 10  # the child's niceness, so that the scheduler goes first


class NotCompiled(Exception):
    """numba is missing or does not work here; the kernels are interpreted."""


def pairs_of(settings: Iterable[Settings]) -> list[Pair]:
    """The policies of every profile that the settings name."""
    return list(dict.fromkeys(pair_of(profile) for each in settings for profile in each.profiles))


def title(pair: Pair) -> str:
    """The pair for people: `binpack × spread`; a joint policy has one name."""
    node, chain = pair
    return node if NODE_POLICIES[node].offer is not None else f"{node} × {','.join(chain)}"


def written(pair: Pair) -> str:
    """The pair in the form that `read` accepts: `binpack:spread`."""
    return f"{pair[0]}:{','.join(pair[1])}"


def read(text: str) -> Pair:
    """The pair in this text. ValueError where it names no policies."""
    node, _, chain = text.partition(":")
    profile = Profile(node, tuple(chain.split(","))) if chain else Profile(node)
    if node not in NODE_POLICIES:
        raise ValueError(f"{text!r}: no node policy {node!r}; there is {', '.join(NODE_POLICIES)}")
    for name in profile.device:
        if name not in DEVICE_POLICIES:
            raise ValueError(f"{text!r}: no GPU policy {name!r}; there is {', '.join(DEVICE_POLICIES)}")
    return pair_of(profile)


def warm(pairs: Iterable[Pair], on_disk: bool) -> None:
    """Compile these kernels, or load them from disk; blocks until done."""
    for pair in pairs:
        builder(True, on_disk).warm(Profile(*pair))
        if on_disk:
            kernel_cache.remember(_mark(pair))


def load(pairs: Iterable[Pair]) -> None:
    """Load these kernels from disk; blocks until done. Raises native.NotOnDisk where one is missing."""
    for pair in pairs:
        builder(True, True).load(Profile(*pair))


class Workshop:
    """Makes kernels. `on_disk`: there is a folder for them, through which the child hands them over."""

    def __init__(self, on_disk: bool) -> None:
        self._on_disk = on_disk

    async def make(self, pairs: Sequence[Pair]) -> float:
        """Make the kernels usable; returns the seconds spent on compiling, 0 if they were on disk."""
        if not self._on_disk:
            raise NotCompiled("no folder can be written to; set DOVETAIL_CACHE_DIR to one that can")
        try:
            missing = await asyncio.to_thread(self._missing, pairs)
            started = monotonic()
            if missing:
                await asyncio.to_thread(_prepare)
                await _in_child([written(pair) for pair in missing])
            took = monotonic() - started if missing else 0.0
            await asyncio.to_thread(load, pairs)
            return took
        except Exception as error:  # numba's own errors are of many types
            raise NotCompiled(why(error)) from error

    def _missing(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs that are not on disk for this machine."""
        return [pair for pair in pairs if not kernel_cache.is_warm(_mark(pair)) or not _is_loaded(pair)]


def _is_loaded(pair: Pair) -> bool:
    """Load a pair that is marked as compiled. False: its files are gone, so it must be compiled again."""
    from dovetail.engine.kernel import native

    try:
        load([pair])
    except native.NotOnDisk:
        return False
    return True


def _prepare() -> None:
    from dovetail.engine.kernel import native  # numba takes 0.3 s and 90 MB: import it only if needed

    native.prepare()


async def _in_child(names: Sequence[str]) -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__, *names),  # -P: no modules from the working directory
        stdin=asyncio.subprocess.PIPE,  # never written to: it ends when this process ends, however that happens
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stderr is not None
    try:
        async with asyncio.timeout(LONGEST_COMPILE):
            said = await child.stderr.read()
            await child.wait()
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if child.returncode:
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(": ".join((f"the compiling process ended with code {child.returncode}", *last)))


def _mark(pair: Pair) -> str:
    """The mark of a pair that was compiled for this processor.

    numba stores the code of each processor separately: a folder filled elsewhere may hold nothing for this one.
    """
    # numba takes 0.3 s and 90 MB: import it in the thread that compiles or loads.
    from dovetail.engine.kernel import native

    return f"live {written(pair)} {native.machine()}"


def main(names: Sequence[str]) -> int:
    """Run the child. Its parent logs the last line of stderr."""
    os.nice(NICE)
    try:
        warm([read(name) for name in names], kernel_cache.prepare())
    except Exception as error:  # numba and LLVM raise errors of any type, with messages of many lines
        print(why(error), file=sys.stderr)
        return 1
    return 0


def _end_with_parent() -> None:
    """End when standard input ends: a parent that was killed with -9 leaves no compiler behind."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
