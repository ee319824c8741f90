"""Where runs are made: in this process, in processes of this machine, or on a dask or ray cluster.

An executor takes tasks and yields results as they finish, in any order. It holds only a few tasks and results at a
time, however many there are.
"""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Protocol

from dovetail.sim.results import Result
from dovetail.sim.runs import RunTask, Stage, run

AHEAD = 2  # tasks per worker that are handed out ahead
Finished = Generator[tuple[RunTask, Result], None, None]


class CannotRun(RuntimeError):
    """The executor is not available; the message says what would help."""


class Executor(Protocol):
    """Makes runs. `local`: the workers can read the kernels that this process has compiled."""

    local: bool

    def results(self, tasks: Iterable[RunTask], stages: Mapping[str, Stage]) -> Finished:
        """Yield each task with its result. `stages`, by digest, are those that the tasks name.

        Closing the iterator ends the runs that are still going on.
        """
        ...


def executor_on(where: str | None, workers: int | None = None, tasks: int | None = None) -> Executor:
    """The executor for `where`: None is this machine; `ray`, `ray://HOST:PORT` and `dask://HOST:PORT` are clusters."""
    if where is None:
        count = min(workers or cores(), tasks or 1)
        return ProcessPool(count) if count > 1 else Here()
    engine, slashes, address = where.partition("://")
    if engine == "dask" and slashes and address:
        from dovetail.sim.executor_dask import Dask

        return Dask(address)
    if where == "ray" or (engine == "ray" and slashes and address):
        from dovetail.sim.executor_ray import Ray

        return Ray(where if slashes else None, workers)
    raise CannotRun(f"{where!r} is nowhere to run; write ray, ray://HOST:PORT or dask://HOST:PORT")


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Here:
    """Makes the runs one after another in this process."""

    local = True

    def results(self, tasks: Iterable[RunTask], stages: Mapping[str, Stage]) -> Finished:
        for task in tasks:
            yield task, run(task, stages[task.stage])


class ProcessPool:
    """Makes the runs in processes of this machine.

    Stages go through files, so that a worker loads only what it needs.
    """

    local = True

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def results(self, tasks: Iterable[RunTask], stages: Mapping[str, Stage]) -> Finished:
        with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
            for digest, stage in stages.items():
                (Path(folder) / digest).write_bytes(pickle.dumps(stage, pickle.HIGHEST_PROTOCOL))
            pool = ProcessPoolExecutor(self._workers, get_context("spawn"), end_with_parent)
            try:
                yield from self._finished(pool, folder, iter(tasks))
            except BrokenProcessPool as error:
                raise CannotRun("a worker process was ended from outside; was memory short? try --workers 1") from error
            finally:
                _end(pool)

    def _finished(self, pool: ProcessPoolExecutor, folder: str, tasks: Iterator[RunTask]) -> Finished:
        running: dict[Future[Result], RunTask] = {}
        while True:
            for task in islice(tasks, AHEAD * self._workers - len(running)):
                with _interrupts_held():
                    running[pool.submit(run_from, folder, task)] = task
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def end_with_parent() -> None:
    """End this worker when the process that started it ends, even if that process is killed."""
    parent = parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        Thread(target=lambda: (connection.wait([sentinel]), os._exit(1)), daemon=True).start()


def run_from(folder: str, task: RunTask) -> Result:
    return run(task, _stage(folder, task.stage))


@lru_cache(maxsize=1)
def _stage(folder: str, digest: str) -> Stage:
    stage: Stage = pickle.loads((Path(folder) / digest).read_bytes())
    return stage


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block SIGINT for processes that are started here: they inherit the mask.

    Ctrl-C then reaches only this process, which ends the workers.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(pool: ProcessPoolExecutor) -> None:
    """End the workers without waiting for their runs: their results are no longer needed."""
    busy = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in busy:
        process.terminate()
    for process in busy:
        process.join()
