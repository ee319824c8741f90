"""How compiled code accesses the state: one pointer instead of fifty arrays.

numba passes a named tuple of arrays by value. With our state that is some four hundred arguments a call, reference
counts on each access, and 43 s of compiling instead of 12. Here a named tuple is written once as a table of 64-bit
words: address and shape of each array, addresses of nested tables. Compiled code gets the table's address, and
`state.rows.used` loads from it. References are not counted: the caller keeps the arrays alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_type_hints

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_getattr_generic
from numba.core.registry import cpu_target
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model

from dovetail.engine.kernel.book import charge, release, roll_back, settle
from dovetail.engine.kernel.code_library import ENTRY_NAMES, INNER_NAMES, use_library
from dovetail.engine.kernel.collector import collector_off
from dovetail.engine.kernel.place import place_groups, survey, which_fit
from dovetail.engine.kernel.state import Batch, Book, Journal, Scratch, State, Vectors
from dovetail.policies.rows import Rows, Wants

ELEMENTS = {"int64": types.int64, "float64": types.float64, "uint8": types.uint8, "int32": types.int32}


class NativeTable(types.Type):  # type: ignore[misc]
    """The type of a named tuple in compiled code. `fields` is ((name, type), …)."""

    def __init__(self, title: str, fields: tuple[tuple[str, Any], ...]) -> None:
        self.fields = fields
        self.offsets: dict[str, int] = {}
        at = 0
        for name, kind in fields:
            self.offsets[name] = at
            at += 1 + (kind.ndim if isinstance(kind, types.Array) else 0)
        self.words = at
        self.dtypes = {name: np.dtype(str(kind.dtype)) for name, kind in fields if isinstance(kind, types.Array)}
        super().__init__(name=f"dovetail.{title}({', '.join(f'{n}: {k}' for n, k in fields)})")


@register_model(NativeTable)
class TableModel(models.OpaqueModel):  # type: ignore[misc]
    """A pointer."""


@infer_getattr
class TableAttributes(AttributeTemplate):  # type: ignore[misc]
    key = NativeTable

    def generic_resolve(self, table: NativeTable, name: str) -> Any:
        return dict(table.fields).get(name)


@lower_getattr_generic(NativeTable)  # type: ignore[untyped-decorator]
def load_field(context: Any, builder: Any, table: NativeTable, value: Any, name: str) -> Any:
    kind = dict(table.fields)[name]
    words = builder.bitcast(value, cgutils.intp_t.as_pointer())

    def word(n: int) -> Any:
        """Load a word of the table.

        Tables never change while compiled code runs; without the mark LLVM reloads after stores.
        """
        loaded = builder.load(builder.gep(words, [context.get_constant(types.intp, table.offsets[name] + n)]))
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    if isinstance(kind, NativeTable):
        return builder.inttoptr(word(0), context.get_value_type(kind))
    if not isinstance(kind, types.Array):
        return word(0)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    shape = [word(1 + axis) for axis in range(kind.ndim)]
    strides = [itemsize]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    data = builder.inttoptr(word(0), context.get_data_type(kind.dtype).as_pointer())
    return _array(context, builder, kind, data=data, itemsize=itemsize, shape=shape, strides=strides)


def _array(context: Any, builder: Any, kind: Any, **parts: Any) -> Any:
    """The array as numba's value, built directly, without owner and size.

    `populate_array` builds it on the stack with three times as many instructions, and a kernel uses arrays hundreds of
    times.
    """
    model = context.data_model_manager[kind]
    array = ir.Constant(context.get_value_type(kind), None)  # all zero
    for name, part in parts.items():
        position = model.get_field_position(name)
        if isinstance(part, list):
            for axis, word in enumerate(part):
                array = builder.insert_value(array, word, [position, axis])
        else:
            array = builder.insert_value(array, part, position)
    return array


def table_of(tuple_class: Any, dimensions: dict[str, int]) -> NativeTable:
    """The layout of a named tuple whose fields are C-ordered arrays, nested named tuples or integers."""
    fields: list[tuple[str, Any]] = []
    for name, hint in get_type_hints(tuple_class).items():
        if hint in TABLES:
            fields.append((name, TABLES[hint]))
        elif hint is int:
            fields.append((name, types.int64))
        else:
            element = np.dtype(hint.__args__[1].__args__[0]).name
            fields.append((name, types.Array(ELEMENTS[element], dimensions[name], "C")))
    return NativeTable(tuple_class.__name__, tuple(fields))


TABLES: dict[Any, NativeTable] = {}
AXES: tuple[tuple[Any, str], ...] = (  # the number of dimensions of each array
    (
        Rows,
        "cap 2 used 2 scored 2 card 3 spec 3 held 3 sums 2 gate 2 free 3 left 2 hosts 2 fact 2 rank 1 link 3 peers 2"
        " enforced 1 signal 2 card_signal 3 shown 2 outlook 1",
    ),
    (Wants, "need 2 scored 2 shape 2 ask 2 rule 2 kind_ok 2 uuids 1"),
    (Book, "pod 2 entry 2 peer_row 1"),
    (
        Vectors,
        "score 2 scored 1 refused 2 best 2 high 2 leader 2 most 2 seen 1 stamp 1 older 1 newer 1"
        " measured 1 measured_older 1 measured_newer 1 spoilt 1 stale 1 example 1 candidates 1 points 1 tally 2"
        " tallied 1",
    ),
    (Journal, "line 2 used 2 scored 2 held 3 sums 2 hosts 2"),
    (
        Scratch,
        "run 2 trial 2 peak 2 left 2 order 1 fitting 1 chosen 1 best 1 keys 2 picked 2 room 2 zone 1",
    ),
    (State, "masks 2 heads 1"),
    (
        Batch,
        "shape 1 mask 1 scores 1 vector 1 owner 1 draw 1 group_end 1 group_need 1 args 1 style 1 quota 2 results 2"
        " taken_from 1 taken 2",
    ),
)
for _class, _axes in AXES:
    _words = _axes.split()
    TABLES[_class] = table_of(_class, dict(zip(_words[::2], map(int, _words[1::2]), strict=True)))


_last: dict[str, tuple[Any, int, Any]] = {}  # table -> its last named tuple, address, what must stay alive


def pack(values: Any) -> tuple[int, tuple[Any, ...]]:
    """The address of a named tuple's table, and what must stay alive while the table is used."""
    table = TABLES[type(values)]
    words, alive = np.empty(table.words, dtype=np.int64), [values]
    at = 0
    for value, (name, kind) in zip(values, table.fields, strict=True):
        if isinstance(kind, NativeTable):
            below = _last.get(kind.name)
            if below is None or below[0] is not value:  # mostly one part of a state changes at a time
                below = _last[kind.name] = (value, *pack(value))
            words[at] = below[1]
            alive.append(below)
        elif isinstance(kind, types.Array):
            if value.ndim != kind.ndim or value.dtype != table.dtypes[name] or not value.flags.c_contiguous:
                raise TypeError(f"{table.name.partition('(')[0]}.{name}: {value.dtype} {value.shape} is not {kind}")
            words[at] = value.__array_interface__["data"][0]
            words[at + 1 : at + 1 + kind.ndim] = value.shape
            at += kind.ndim
        else:
            words[at] = value
        at += 1
    alive.append(words)
    return words.__array_interface__["data"][0], tuple(alive)


def _at(table: NativeTable) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def at(typing_context: Any, address: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return table(types.intp), lower

    return at


state_at, batch_at = _at(TABLES[State]), _at(TABLES[Batch])


def place_entry(state: int, batch: int) -> None:
    place_groups(state_at(state), batch_at(batch))


def fits_entry(state: int, batch: int, row: int) -> int:
    return which_fit(state_at(state), batch_at(batch), row)


def survey_entry(state: int, batch: int) -> None:
    survey(state_at(state), batch_at(batch))


def charge_entry(state: int, slot: int, sign: int) -> None:
    charge(state_at(state), slot, sign)


def release_entry(state: int, slots: Any) -> None:
    release(state_at(state), slots)


def roll_back_entry(state: int, start: int) -> None:
    roll_back(state_at(state), start)


def settle_entry(state: int) -> None:
    settle(state_at(state))


_INT, _SLOTS = types.int64, types.Array(types.int64, 1, "C")
SIGNATURES = {  # of every entry, as Python calls it: only these are compiled
    "place_entry": (_INT, _INT),
    "fits_entry": (_INT, _INT, _INT),
    "survey_entry": (_INT, _INT),
    "charge_entry": (_INT, _INT, _INT),
    "release_entry": (_INT, _SLOTS),
    "roll_back_entry": (_INT, _INT),
    "settle_entry": (_INT,),
}


def warm_entry(entry: Any) -> None:
    """Compile an entry, or load it from disk, without calling it.

    The garbage collector is off: compiling makes millions of objects, and collecting would take a tenth of the time.
    """
    with collector_off():
        entry.compile(SIGNATURES[entry.py_func.__name__])


class NotOnDisk(Exception):
    """The kernel must be compiled first, by another process."""


def load_entry(entry: Any) -> None:
    """Load an entry from disk. Raises NotOnDisk; nothing is compiled."""
    cache = entry._cache
    key = cache._index_key(SIGNATURES[entry.py_func.__name__], cpu_target.target_context.codegen())
    if not entry.signatures and key not in cache._cache_file._load_index():
        raise NotOnDisk(entry.py_func.__qualname__)
    warm_entry(entry)


def compiled_for(entry: Any, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """An entry that takes no state, compiled for these arguments."""
    with collector_off():
        entry.compile(tuple(map(numba.typeof, arguments)))
    ready: Callable[..., Any] = entry
    return ready


def _nothing_entry(number: int) -> int:
    return number


@cache
def prepare() -> None:
    """Let numba and LLVM take the memory that they need in any case: 50 MiB, and a quarter of a second.

    A scheduler whose kernels are compiled elsewhere has its full size from the start, and not minutes later.
    """
    compiled_for(compile_function(_nothing_entry, cache=False), (0,))


def machine() -> str:
    """The processor that compiled code is made for.

    numba keeps the code of each processor apart: a cache filled on one machine may be useless on another.
    """
    return str(cpu_target.target_context.codegen().magic_tuple())


# Nothing is allocated, no divisor is ever zero, and Python calls only entries.
SETTINGS = {"_nrt": False, "error_model": "numpy"}
INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
use_library()


def compile_function(function: Any, cache: bool) -> Any:
    """Compile a function. Only entries are kept on disk: they contain everything that they call."""
    if function.__name__.endswith("_entry"):  # also entries of other modules: Python cannot call inner functions
        if function.__name__ in SIGNATURES:
            ENTRY_NAMES.add(function.__qualname__)
        return numba.njit(cache=cache, **SETTINGS)(function)
    INNER_NAMES.add(function.__qualname__)
    return numba.njit(**SETTINGS, **INNER)(function)


class StateTable:
    """The table of the state that was used last.

    All callers share it: one that was not called for a while would keep the arrays of an old state alive, which may
    be hundreds of MiB.
    """

    def __init__(self) -> None:
        self._state: State | None = None
        self._packed: tuple[int, tuple[Any, ...]] = (0, ())

    def of(self, state: State) -> tuple[int, tuple[Any, ...]]:
        """The address of the state's table, and what must stay alive while the table is used."""
        if state is not self._state:
            self._packed = pack(state)
            self._state = state
        return self._packed


LAST_STATE = StateTable()


class Caller:
    """Calls entries with named tuples. The tables of the last few batches are kept."""

    REMEMBERED = 8

    def __init__(self, plain: Mapping[Any, Callable[..., Any]], compiles: Callable[[Any], bool]) -> None:
        """`plain`: the interpreted function of each entry, used if `compiles` returns False."""
        self._plain, self._compiles = plain, compiles
        self._packed: dict[int, tuple[Any, int, Any]] = {}  # id of a batch -> (batch, address, what must stay alive)
        self._used: set[Any] = set()  # entries that were compiled

    def __call__(self, entry: Any, state: State, *others: Any) -> Any:
        if entry not in self._used:
            return self._first(entry, state, *others)
        at, _alive = LAST_STATE.of(state)
        if others and type(others[0]) is Batch:
            return entry(at, self._address(others[0]), *others[1:])
        return entry(at, *others)

    def _first(self, entry: Any, state: State, *others: Any) -> Any:
        if not self._compiles(entry):
            return self._plain[entry](state, *others)
        self._used.add(entry)
        return self(entry, state, *others)

    def _address(self, batch: Batch) -> int:
        """The address of the batch's table. The least recently used table is dropped."""
        known = self._packed.pop(id(batch), None)  # an id in the table belongs to a batch that the table keeps alive
        if known is None:
            if len(self._packed) >= self.REMEMBERED:
                del self._packed[next(iter(self._packed))]
            known = (batch, *pack(batch))
        self._packed[id(batch)] = known
        return known[1]
