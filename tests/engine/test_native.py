"""Compiled code gets addresses: what stands there must stay alive for as long as the call lasts."""

from __future__ import annotations

import gc
import inspect
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import pytest
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target
from numba.core.targetconfig import TargetConfig

from dovetail.engine.kernel import code_library, native
from dovetail.engine.ledger.requests import Requests
from tests.builders import ask, cluster, node, pod


def test_the_tables_of_a_call_outlive_it_however_many_batches_came_before() -> None:
    scheduler = cluster(node("a", gpus=2))
    requests: Requests = scheduler.requests
    one = pod("p", ask(1, 1000))
    signature = requests.signature(one)
    state = scheduler.ledger.state()
    call = native.Caller({}, lambda entry: True)
    for _ in range(3 * native.Caller.REMEMBERED):
        batch = requests.batch([one], [signature], [(1, 1)])
        addresses = call(lambda *given: given, state, batch)
        at, kept = native.LAST_STATE.of(state)
        alive = {address for _, address, _ in call._packed.values()} | {at}
        assert len(kept) > 0
        assert set(addresses) <= alive  # an evicted table is freed memory that compiled code would read
    assert len(call._packed) == native.Caller.REMEMBERED


def test_of_a_state_only_the_part_that_changed_is_laid_out_again_and_all_of_it_stays_alive() -> None:
    scheduler = cluster(node("a", gpus=2))
    state = scheduler.ledger.state()
    _, before = native.pack(state)
    changed = state._replace(heads=state.heads.copy(), rows=state.rows._replace(used=state.rows.used.copy()))
    _, after = native.pack(changed)

    def tables(alive: tuple[object, ...]) -> dict[str, int]:
        return {type(part[0]).__name__: part[1] for part in alive if isinstance(part, tuple) and len(part) == 3}

    differ = {name for name, address in tables(after).items() if tables(before)[name] != address}
    assert differ == {"Rows"}
    assert set(tables(after)) == {"Rows", "Wants", "Book", "Vectors", "Journal", "Scratch"}


def test_a_kernel_that_is_not_called_any_more_keeps_no_old_state_alive() -> None:
    """Each kept the arrays of its last call: on 5,000 nodes up to 192 MiB of scores that were replaced long ago."""
    scheduler = cluster(node("a", gpus=2))
    once, often = (native.Caller({}, lambda entry: True) for _ in range(2))
    state = scheduler.ledger.state()
    scores = weakref.ref(state.vectors.score)
    once(lambda *given: given, state)
    scheduler.ledger.vectors.resize(1_000)  # as when nodes join
    del state
    often(lambda *given: given, scheduler.ledger.state())
    assert scores() is None


def test_numba_is_made_as_our_code_library_expects() -> None:
    """`use_library` does nothing where numba's internals have another shape: then a kernel takes thrice as long to
    compile. A new numba that fails here needs a look at `Library` before its bound in pyproject.toml is raised."""
    codegen = cpu_target.target_context.codegen()
    assert codegen._library_class is code_library.Library
    library = codegen.create_library("a test")
    assert isinstance(library, JITCodeLibrary)
    for name in ("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals"):
        assert not inspect.signature(getattr(JITCodeLibrary, name)).parameters.keys() - {"self"}
    assert library._finalized is False


def test_numba_s_own_classes_are_left_as_they_are() -> None:
    """What another library of the same process compiles is compiled as without us."""
    methods = (TargetConfig.__eq__, TargetConfig.__hash__, JITCodeLibrary._finalize_final_module)
    assert {method.__module__ for method in methods} == {"numba.core.targetconfig", "numba.core.codegen"}


def settle_entry(number: int) -> int:
    """Named as an entry that Python calls."""
    return number + 1


def add_entry(number: int) -> int:
    """Named as a function of book.py that kernels call, and that is kept on disk."""
    return number + 2


def one_less(number: int) -> int:
    return number - 1


def test_an_entry_that_is_loaded_keeps_its_machine_code_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """9 of the 12 MiB that a pair of policies took were the LLVM form of its entries: 32 pairs took 380 MiB."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def loaded(make: Callable[[], Any]) -> Any:
        for _ in range(2):
            made = make()
            made.compile((numba.int64,))
        assert sum(made.stats.cache_hits.values()) == 1
        return made

    ours = loaded(lambda: native.compile_function(settle_entry, cache=True))
    assert ours.overloads[ours.signatures[0]].library._shared_module is None
    assert ours(1) == 2
    linked = loaded(lambda: native.compile_function(add_entry, cache=True))
    assert numba.njit(lambda number: linked(number))(1) == 3
    other = loaded(lambda: numba.njit(cache=True)(one_less))  # of another library: it may be linked
    assert numba.njit(lambda number: other(number))(1) == 0


def test_compiling_leaves_the_collector_as_it_was() -> None:
    def settle_entry(state: int) -> None: ...

    during: list[bool] = []
    entry = SimpleNamespace(py_func=settle_entry, compile=lambda signature: during.append(gc.isenabled()))
    assert gc.isenabled()
    native.warm_entry(entry)
    assert during == [False]
    assert gc.isenabled()


def test_numba_is_prepared_once() -> None:
    """The first kernel that was loaded took 50 MiB more than the others, minutes after the start."""
    native.prepare.cache_clear()
    native.prepare()
    before = code_library.ENTRY_NAMES.copy()
    native.prepare()
    assert native.prepare.cache_info().hits == 1
    assert before == code_library.ENTRY_NAMES
