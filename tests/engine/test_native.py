"""Compiled code gets addresses: what stands there must stay alive for as long as the call lasts."""

from __future__ import annotations

import gc
import inspect
from types import SimpleNamespace

from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target
from numba.core.targetconfig import TargetConfig

from dovetail.engine.kernel import native
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
        alive = {address for _, address, _ in call._packed.values()} | {call._at}
        assert len(call._alive) > 0
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


def test_numba_is_made_as_our_code_library_expects() -> None:
    """`use_library` does nothing where numba's internals have another shape: then a kernel takes thrice as long to
    compile. A new numba that fails here needs a look at `Library` before its bound in pyproject.toml is raised."""
    codegen = cpu_target.target_context.codegen()
    assert codegen._library_class is native.Library
    library = codegen.create_library("a test")
    assert isinstance(library, JITCodeLibrary)
    for name in ("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals"):
        assert not inspect.signature(getattr(JITCodeLibrary, name)).parameters.keys() - {"self"}
    assert library._finalized is False


def test_numba_s_own_classes_are_left_as_they_are() -> None:
    """What another library of the same process compiles is compiled as without us."""
    methods = (TargetConfig.__eq__, TargetConfig.__hash__, JITCodeLibrary._finalize_final_module)
    assert {method.__module__ for method in methods} == {"numba.core.targetconfig", "numba.core.codegen"}


def test_compiling_leaves_the_collector_as_it_was() -> None:
    def settle_entry(state: int) -> None: ...

    during: list[bool] = []
    entry = SimpleNamespace(py_func=settle_entry, compile=lambda signature: during.append(gc.isenabled()))
    assert gc.isenabled()
    native.warm_entry(entry)
    assert during == [False]
    assert gc.isenabled()
