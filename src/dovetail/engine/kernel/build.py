"""One definition of every kernel function and policy, run interpreted or compiled, for any profile.

A kernel function names a few *hooks* (`node_score`, `key_first`, …). `specialise` copies the function, and everything
it calls, with the profile's policies as hooks. With `compiled`, numba compiles each copy. The copies carry the profile
in their names, so numba's cache on disk keeps them apart. Editing any source file gives another cache folder (see
dovetail/kernel_cache.py), because numba looks for changes only in the file of the function itself.

If numba cannot be imported, or fails to compile a function, the interpreted copy is used, with one warning. Both make
the same decisions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from hashlib import sha256
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dovetail.engine.kernel import book as kernel_book
from dovetail.engine.kernel import choose as kernel_choose
from dovetail.engine.kernel import joint as kernel_joint
from dovetail.engine.kernel import lone as kernel_lone
from dovetail.engine.kernel import normalise as kernel_normalise
from dovetail.engine.kernel import place as kernel_place
from dovetail.engine.kernel import signals as kernel_signals
from dovetail.engine.kernel.state import (
    STYLE_ALONE,
    STYLE_FIELDS,
    STYLE_IDLE_ONLY,
    STYLE_NUMA_SIGN,
    STYLE_SET,
    STYLE_SIGN,
    Batch,
    State,
)
from dovetail.model.not_compiled import INTERPRETED_INSTEAD, NotCompiledWarning, why
from dovetail.model.pod import Profile
from dovetail.policies import device_spread
from dovetail.policies.rows import Ints, NodePolicy
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

LONGEST_CHAIN = 4
MAX_INTERPRETED = 64  # pairs of policies whose interpreted kernels are kept, plus as many previous ones
Hooks = Mapping[str, Callable[..., Any]]
Pair = tuple[str, tuple[str, ...]]  # a node policy and a chain of device policies
Place = Callable[[State, Batch], None]
Made = TypeVar("Made")
_KEY_HOOKS = ("key_first", "key_second", "key_third", "key_fourth")

# A joint policy orders and chooses cards itself; it sees them in the order of first-fit.
JOINT_CHAIN = ("first-fit",)
JOINT_HOOKS: Hooks = {
    "look": kernel_joint.look_jointly,
    "look_at_each": kernel_joint.look_at_each_jointly,
    "node_score": kernel_joint.worth_as_score,
    "score_line": kernel_joint.own_line,
    "second_look": kernel_joint.no_second_look,
    "choose_all": kernel_joint.choose_jointly,
    "choose_set": kernel_joint.choose_set_jointly,
}

SIGNAL_HOOKS: Hooks = {
    "score_measured": kernel_signals.score_again_measured,
    "look_at_measured": kernel_signals.look_again_at_measured,
}

NORMALISE_HOOKS: Hooks = {
    "best_row": kernel_normalise.best_normalised,
    "survey_scores": kernel_normalise.normalise_survey,
}

LONE_HOOKS: Hooks = {"remember": kernel_lone.remember_nothing, "roll_back": kernel_lone.roll_nothing_back}
LONE_JOINT_HOOKS: Hooks = {
    "choose_one_by_one": kernel_lone.choose_never,
    "choose_set": kernel_choose.no_set,
    "node_refusal": kernel_lone.shortage,
}


class Kernel(NamedTuple):
    """The functions and data of a profile."""

    node_policy: NodePolicy
    style: Ints
    place_groups: Place
    place_lone: Place  # the same for lone pods with at most one ask, outside transactions and quotas
    which_fit: Callable[[State, Batch, int], int]
    survey: Place  # the answer of every node for one pod


class Lens(NamedTuple):
    """The interpreted functions of a profile, for looking at single nodes and cards."""

    style: Ints
    choose_all: Callable[..., int]
    node_refusal: Callable[..., int]
    order_cards: Callable[..., int]
    points: Callable[[State, int, int, Ints], float]  # of a node that fits: state, row, shape, arguments


class BookKeeping(NamedTuple):
    """The functions that do not depend on the profile."""

    charge: Callable[[State, int, int], None]
    release: Callable[[State, Ints], None]
    roll_back: Callable[[State, int], None]
    settle: Callable[[State], None]


PLAIN_BOOKS = BookKeeping(kernel_book.charge, kernel_book.release, kernel_book.roll_back, kernel_book.settle)


class Builder:
    """Builds kernels and keeps them: plain Python, or compiled by numba and kept on disk with `cache`.

    Old interpreted kernels are dropped: tenants choose among thousands of pairs, and each kernel is 20 kB of functions.
    """

    def __init__(self, compiled: bool, cache: bool = False) -> None:
        self.compiled = compiled
        self._cache = cache
        self._made: dict[tuple[Any, ...], Callable[..., Any]] = {}  # (function, hooks it reaches) -> copy
        self._before: dict[tuple[Any, ...], Callable[..., Any]] = {}  # the same, of the kernels that were dropped last
        self.kernels: dict[Pair, Kernel] = {}  # made so far
        self._lenses: dict[Pair, Lens] = {}
        self.trouble = ""  # why nothing more is compiled in this process; "" = no problem so far

    def kernel(self, profile: Profile) -> Kernel:
        key = (profile.node, profile.device)
        if key not in self.kernels:
            self._make_room(len(self.kernels))
            plain = builder(False).kernel if self.compiled else self._kernel
            self.kernels[key] = self._attempt(lambda: self._kernel(profile), lambda: plain(profile))
        return self.kernels[key]

    def _kernel(self, profile: Profile) -> Kernel:
        hooks, style = profile_hooks(profile)
        lone = {**hooks, **LONE_HOOKS, **(LONE_JOINT_HOOKS if "offer" in hooks else {})}
        return Kernel(
            NODE_POLICIES[profile.node],
            style,
            self._door("place_groups", hooks),
            self._door("place_groups", lone),
            self._door("which_fit", hooks),
            self._door("survey", hooks),
        )

    def _attempt(self, make: Callable[[], Made], plain: Callable[[], Made]) -> Made:
        """The result of `make`; if numba fails, the result of `plain`, now and from now on."""
        if not self.compiled or self.trouble:
            return plain()
        try:
            return make()
        except Exception as error:  # numba and LLVM raise errors of any kind
            self._give_up(error)
            return plain()

    def _give_up(self, error: Exception) -> None:
        """Stop compiling after one failure: each attempt may take ten seconds."""
        self.trouble = why(error)
        warnings.warn(f"{INTERPRETED_INSTEAD}: {self.trouble}", NotCompiledWarning, stacklevel=2)

    def warm(self, profile: Profile) -> None:
        """Compile everything that the profile runs, with book-keeping, or load it from disk: nothing is compiled later.

        Raises what numba raises: the caller decides what to use instead.
        """
        from dovetail.engine.kernel import native

        self._prepare(profile, native.warm_entry)

    def load(self, profile: Profile) -> None:
        """Like `warm`, but compile nothing: raises native.NotOnDisk. LLVM keeps 100 MiB once it has compiled a pair."""
        from dovetail.engine.kernel import native

        self._prepare(profile, native.load_entry)

    def _prepare(self, profile: Profile, prepare: Callable[[Any], None]) -> None:
        kernel = self._kernel(profile)
        doors = (kernel.place_groups, kernel.place_lone, kernel.which_fit, kernel.survey, *self._compiled_books())
        for door in doors:
            assert isinstance(door, partial)
            prepare(door.args[0])
        self.kernels[profile.node, profile.device] = kernel

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call one of our functions with scalars and arrays."""
        return self._attempt(lambda: self._compiled_for(function, arguments), lambda: function)(*arguments)

    def _compiled_for(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
        from dovetail.engine.kernel import native

        return native.compiled_for(self.specialise(function, {}), arguments)

    def lens(self, profile: Profile) -> Lens:
        key = (profile.node, profile.device)
        if key not in self._lenses:
            self._make_room(len(self._lenses))
            hooks, style = profile_hooks(profile)
            self._lenses[key] = Lens(
                style,
                self.specialise(kernel_choose.choose_all, hooks),
                self.specialise(kernel_choose.node_refusal, hooks),
                self.specialise(kernel_choose.order_cards, hooks),
                self._points(profile, hooks, style),
            )
        return self._lenses[key]

    def _make_room(self, kept: int) -> None:
        """Drop old interpreted kernels. A copy that is used again is taken from `_before`."""
        if kept >= MAX_INTERPRETED and not self.compiled:
            self.kernels, self._lenses, self._made, self._before = {}, {}, {}, self._made

    def _points(self, profile: Profile, hooks: Hooks, style: Ints) -> Callable[[State, int, int, Ints], float]:
        score = NODE_POLICIES[profile.node].score
        if score is not None:
            return lambda state, i, s, args: score(state.rows, i, state.wants, s, args)
        joint = self.specialise(kernel_joint.points_now, hooks)
        return lambda state, i, s, args: joint(state, i, s, style)

    def book_keeping(self) -> BookKeeping:
        return self._attempt(self._compiled_books, lambda: PLAIN_BOOKS)

    def _compiled_books(self) -> BookKeeping:
        from dovetail.engine.kernel import native

        names = (native.charge_entry, native.release_entry, native.roll_back_entry, native.settle_entry)
        entries = [self.specialise(entry, {}) for entry in names]
        call = native.Caller(dict(zip(entries, PLAIN_BOOKS, strict=True)), self._compiles)
        return BookKeeping(*(partial(call, entry) for entry in entries))

    def _compiles(self, entry: Callable[..., Any]) -> bool:
        """Compile an entry at its first call, or load it from disk; returns whether that worked."""
        from dovetail.engine.kernel import native

        def compile_it() -> bool:
            native.warm_entry(entry)
            return True

        return self._attempt(compile_it, lambda: False)

    def _door(self, name: str, hooks: Hooks) -> Callable[..., Any]:
        """A kernel function for the given hooks, compiled at its first use."""
        interpreter = builder(False) if self.compiled else self
        plain = interpreter.specialise(getattr(kernel_place, name), hooks)
        if not self.compiled:
            return plain
        from dovetail.engine.kernel import native  # numba takes 0.3 s and 90 MB: import it only if needed

        entries: dict[str, Callable[..., Any]] = {
            "place_groups": native.place_entry,
            "which_fit": native.fits_entry,
            "survey": native.survey_entry,
        }
        entry = self.specialise(entries[name], hooks)
        return partial(native.Caller({entry: plain}, self._compiles), entry)

    def specialise(self, function: Callable[..., Any], hooks: Hooks) -> Callable[..., Any]:
        """A copy of `function` that calls copies of its helpers, with the hooks put in."""
        assert isinstance(function, FunctionType)
        used = sorted(hook for hook in _hooks_reached(function, hooks))
        key = (function, *((hook, hooks[hook]) for hook in used))
        if key in self._before and key not in self._made:
            self._made[key] = self._before[key]
        if key not in self._made:
            scope = dict(function.__globals__)
            for name in _helpers(function):
                scope[name] = self.specialise(hooks.get(name, scope[name]), hooks)
            names = "_".join(f"{hook}={hooks[hook].__module__}.{hooks[hook].__name__}" for hook in used)
            tag = sha256(names.encode()).hexdigest()[:16]  # file names have a maximum length
            copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
            copy.__module__, copy.__qualname__ = function.__module__, f"{function.__qualname__}__{tag}"
            self._made[key] = self._compile(copy) if self.compiled else copy
        return self._made[key]

    def _compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        from dovetail.engine.kernel import native  # numba takes 0.3 s and 90 MB: import it only if needed

        compiled: Callable[..., Any] = native.compile_function(function, self._cache)
        return compiled


def pair_of(profile: Profile) -> Pair:
    """The policies that decide which kernel a profile runs, without weights. A joint policy uses no device policy."""
    joint = NODE_POLICIES[profile.node].offer is not None
    return (profile.node, JOINT_CHAIN if joint else profile.device)


@cache
def builder(compiled: bool, on_disk: bool = False) -> Builder:
    """One builder per process: kernels compiled for one scheduler serve the next."""
    return Builder(compiled, on_disk)


def profile_hooks(profile: Profile) -> tuple[dict[str, Callable[..., Any]], Ints]:
    """Everything that a profile puts into the kernel: functions, and its style as data."""
    node = NODE_POLICIES[profile.node]
    if node.offer is not None and node.worth is not None:
        hooks, style = device_hooks(JOINT_CHAIN)
        style[STYLE_SET], style[STYLE_SIGN] = True, 1
        hooks = hooks | dict(JOINT_HOOKS) | {"offer": node.offer, "node_worth": node.worth}
        if node.reads_signals:  # idle nodes of the same hardware may differ in load
            hooks = hooks | dict(SIGNAL_HOOKS) | {"look_at_each": kernel_place.look_at_each}
        return hooks, style
    assert node.score is not None
    hooks, style = device_hooks(profile.device)
    style[STYLE_SIGN] = -1 if node.lowest_wins else 1
    if node.reads_signals:
        hooks |= SIGNAL_HOOKS
    if node.normalise is not None and not node.keeps_order:
        hooks |= dict(NORMALISE_HOOKS) | {"normalise": node.normalise}
    return hooks | {"node_score": node.score}, style


def device_hooks(chain: tuple[str, ...]) -> tuple[dict[str, Callable[..., Any]], Ints]:
    """The sort keys of a chain, and its style as data.

    A single policy breaks ties by NUMA node and position, a chain by index (HAMi's gpu_policy.go). In a chain only sort
    keys order the cards; a chain without sort keys orders like spread.
    """
    policies = [DEVICE_POLICIES[name] for name in chain]
    alone = len(policies) == 1 and not policies[0].is_chain
    keys = [policy.key for policy in policies if policy.key is not None]
    if not keys:
        keys = [policies[0].alone_key if alone and policies[0].alone_key is not None else device_spread.key]
    keys += [kernel_choose.no_key] * (LONGEST_CHAIN - len(keys))
    hooks: dict[str, Callable[..., Any]] = dict(zip(_KEY_HOOKS, keys, strict=True))
    choosers = [policy.choose for policy in policies if policy.choose is not None]
    hooks["choose_set"] = choosers[0] if choosers else kernel_choose.no_set
    if any(policy.reads_signals for policy in policies):
        hooks["card_load"] = kernel_signals.load_of
    style = np.zeros(STYLE_FIELDS, dtype=np.int64)
    style[STYLE_ALONE] = alone
    style[STYLE_NUMA_SIGN] = -1 if alone and policies[0].lowest_numa_first else 1
    style[STYLE_SET] = bool(choosers)
    style[STYLE_IDLE_ONLY] = any(policy.idle_only for policy in policies)
    return hooks, style


def _helpers(function: FunctionType) -> list[str]:
    """Names of our functions that the function calls."""
    scope = function.__globals__
    return [
        name
        for name in function.__code__.co_names
        if isinstance(scope.get(name), FunctionType) and scope[name].__module__.startswith("dovetail.")
    ]


def _hooks_reached(function: FunctionType, hooks: Hooks) -> set[str]:
    reached: set[str] = set()
    for name in _helpers(function):
        if name in hooks:
            reached.add(name)
        reached |= _hooks_reached(hooks.get(name, function.__globals__[name]), hooks)  # type: ignore[arg-type]
    return reached
