"""Reads what the command line says about rights in simulations: queue orders, preemption and queues."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from dovetail import config as configuration
from dovetail.cli.errors import Refused
from dovetail.cli.sim_options import Wanted
from dovetail.kube.conversion import cluster
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.files import documents
from dovetail.kube.objects.problems import InputError, Problems
from dovetail.model.rights import Queue
from dovetail.policies.orders import ORDERS
from dovetail.policies.quota.table import QUOTA_POLICIES
from dovetail.policies.yielding import YIELDING
from dovetail.sim.regime import NO_PREEMPTION, Regime, packed, with_arithmetic

NO_QUEUES = "none"  # as the name of a file
OWN_CONFIG = (configuration.API_VERSION.partition("/")[0], configuration.CONFIG_KIND)


def regimes(orders: Sequence[str], asked: Wanted, several: bool) -> list[Regime]:
    """Every combination of the orders, preemption policies and files of queues; the first of each is the first.

    `several`: the command takes more than one.
    """
    named = _names("--order", orders, tuple(ORDERS), next(iter(ORDERS)))
    preemptions = _names("--preemption", (asked.preemption or "",), (NO_PREEMPTION, *YIELDING), NO_PREEMPTION)
    trees = _trees(asked)
    for option, count in (("--order", len(named)), ("--preemption", len(preemptions)), ("--queues", len(trees))):
        if count > 1 and not several:
            raise Refused(f"{option} names {count}, and a replay has one; `dovetail compare` compares them")
    return [
        Regime(order, preemption, packed(queues), name)
        for order, preemption, (name, queues) in product(named, preemptions, trees)
    ]


def _trees(asked: Wanted) -> list[tuple[str, tuple[Queue, ...]]]:
    """(name, queues) of every file, with its own quota policies or once with each that --quota names."""
    given = [_queues(path) for path in asked.queues] or [("", ())]
    if asked.quota is None:
        return given
    if not any(queues for _, queues in given):
        raise Refused("--quota goes with --queues: which tenant may have how much?")
    policies = _names("--quota", (asked.quota,), tuple(QUOTA_POLICIES), "")
    found: dict[str, tuple[Queue, ...]] = {}
    for (name, queues), policy in product(given, policies):
        found[f"{name} by {policy}" if queues else ""] = tuple(with_arithmetic(queues, policy))
    return list(found.items())


def _names(option: str, given: Sequence[str], known: Sequence[str], default: str) -> list[str]:
    found = [name.strip() for value in given for name in value.split(",") if name.strip()] or [default]
    for name in found:
        if name not in known:
            raise Refused(f"{option} {name[:60]!r}: in time mode there is {', '.join(known)}")
    return list(dict.fromkeys(found))


def _queues(path: Path) -> tuple[str, tuple[Queue, ...]]:
    """The name of the file, and its queues. All problems of the file are errors: a simulation warns of nothing."""
    if str(path) == NO_QUEUES:
        return "", ()
    problems = Problems()
    try:
        found = documents.read([str(path)], problems)
        if any((one.group, one.kind) == OWN_CONFIG for one in found):
            return path.stem, _configured(path)
        given = cluster.load(found, Settings(), problems)
    except InputError as error:
        raise Refused(*(str(one) for one in error.problems if one.severity == "error")) from error
    errors = [str(one) for one in given.problems if one.severity == "error"]
    if errors:
        raise Refused(*errors)
    if not given.queues:
        raise Refused(f"--queues {path}: no ElasticQuota and no Queue is in it")
    return path.stem, given.queues


def _configured(path: Path) -> tuple[Queue, ...]:
    try:
        found = configuration.queues(configuration.load(path), str(path))
    except configuration.ConfigError as error:
        raise Refused(str(error)) from error
    if not found:
        raise Refused(f"--queues {path}: the configuration has no queues")
    return found
