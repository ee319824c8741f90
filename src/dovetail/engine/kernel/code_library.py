"""How numba optimises and loads our functions: less work, and less memory that is kept for good.

Private parts of numba are replaced; its version is pinned, and without these parts everything works as usual.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target

INNER_NAMES: set[str] = set()  # functions that only compiled code calls
ENTRY_NAMES: set[str] = set()  # functions that only Python calls; `add_entry` of book.py is linked by others


class Library(JITCodeLibrary):  # type: ignore[misc]
    """A code library that optimises an inner function only as part of its entry: 15 s of compiling instead of 40.

    numba optimises a function, and makes machine code of it, again at every level of calls.

    With each function from disk, numba also reads its LLVM form, for other functions to link. No function links one of
    SIGNATURES, and only the names in it are needed. So it is read into a context of its own, which is freed. In LLVM's
    common context, the types and constants would stay for good: 1 of the 3.5 MiB that a pair of policies took.
    """

    @classmethod
    def _unserialize(cls, codegen: Any, state: tuple[str, str, Any]) -> Any:
        name, kind, data = state
        if kind != "object" or name not in ENTRY_NAMES:
            return super()._unserialize(codegen, state)
        machine_code, llvm_form = data
        library = codegen.create_library(name)
        library.enable_object_caching()
        library._set_compiled_object(machine_code)
        library._finalize_final_module()
        codegen._engine._load_defined_symbols(llvm.parse_bitcode(llvm_form, llvm.create_context()))
        return library

    def _optimize_final_module(self) -> None:
        if self.name not in INNER_NAMES:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        if self.name not in INNER_NAMES:
            super()._finalize_final_module()
        else:
            self._finalize_dynamic_globals()
            self._finalized = True


def use_library() -> None:
    """Use `Library`, if numba's internals are as expected. If not, everything works, but compiles more slowly."""
    codegen = cpu_target.target_context.codegen()
    known = (
        *("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals", "_unserialize"),
        *("enable_object_caching", "_set_compiled_object"),
    )
    if getattr(codegen, "_library_class", None) is not JITCodeLibrary or not all(
        hasattr(JITCodeLibrary, n) for n in known
    ):
        return
    set_env = codegen.set_env

    def set_env_if_there(name: str, env: Any) -> None:
        if codegen._engine.get_global_value_address(name):  # an inner function has none yet, and needs none
            set_env(name, env)

    codegen.set_env, codegen._library_class = set_env_if_there, Library
