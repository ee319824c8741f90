"""Custom resources of other projects → the model's Queue: one definition for files and for watches.

Amounts of cards become the model's `gpus` (milli), `gpu-memory` (MiB) and `gpu-compute` (milli), whatever the vendor's
resource is called. All four kinds accept these names too, also for one GPU model: `gpus/A100: 4`. Other resources keep
their names. A field that cannot be read is an error that names the field; the rest of the object counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dovetail.kube.conversion import queue_names
from dovetail.kube.conversion.amounts import amount, text_of
from dovetail.kube.conversion.card_memory import quota_memory
from dovetail.kube.conversion.owners import created
from dovetail.kube.conversion.register import MILLI_PER_CORE
from dovetail.kube.conversion.times import duration_of
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.files.decode import Found
from dovetail.kube.objects import bounds
from dovetail.kube.objects import queues as objects
from dovetail.kube.objects.core import Quantities, Quantity
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model import quantity
from dovetail.model.node import CPU, MEMORY
from dovetail.model.quantity import QuantityError
from dovetail.model.rights import GPU_COMPUTE, GPU_MEMORY, GPUS, Queue, gpu_amount
from dovetail.model.units import WHOLE_CARD

UNLIMITED_QUOTA = bounds.AMOUNT.most  # KAI's -1 as a guarantee: more than any cluster has
MEGABYTE = 1_000_000  # KAI's unit of memory
MILLI_WEIGHTS = 1000  # KAI's weights are fractions
NEVER = math.inf

QUOTA_PREFIX = "quota.scheduling.koordinator.sh/"
PARENT_LABEL, ALLOW_LENT, IS_ROOT = (
    f"{QUOTA_PREFIX}parent",
    f"{QUOTA_PREFIX}allow-lent-resource",
    f"{QUOTA_PREFIX}is-root",
)  # labels
SHARED_WEIGHT, QUOTA_NAMESPACES, TOTAL_RESOURCE = (
    f"{QUOTA_PREFIX}shared-weight",
    f"{QUOTA_PREFIX}namespaces",
    f"{QUOTA_PREFIX}total-resource",
)  # annotations
ROOT_QUOTAS = ("koordinator-root-quota", "root")  # Koordinator's root, and the word its documentation uses for it


def queue_from(item: Found, vendors: Vendors, problems: Problems) -> Queue | None:
    """The queue that an object of QUEUE_KINDS describes; None = it is the root of the tree, which is no queue."""
    reading = _Reading(item, vendors, problems)
    return _READERS[item.group](reading)


class _Reading:
    """One object that is being read."""

    def __init__(self, item: Found, vendors: Vendors, problems: Problems) -> None:
        self.item, self.value, self.meta = item, item.value, item.value.metadata
        self.vendors, self.problems = vendors, problems

    def wrong(self, field: str, message: str) -> None:
        self.problems.error(self.item.where, field, message)

    @property
    def created(self) -> float:
        return created(self.meta, self.item.where, self.problems)

    def amounts(self, field: str, given: Mapping[str, Quantity]) -> dict[str, int]:
        """The amounts of a resource list by the model's names; cards of several vendors are added up."""
        if len(given) > bounds.QUEUE_RESOURCES.most:
            said = bounds.QUEUE_RESOURCES.exceeded(len(given))
            self.problems.warning(self.item.where, field, f"{said}; {bounds.QUEUE_RESOURCES.beyond}")
            given = dict(list(given.items())[: bounds.QUEUE_RESOURCES.most])
        result: dict[str, int] = {}
        origin: dict[str, str] = {}
        for resource, value in given.items():
            try:
                name, converted = _converted(resource, value, self.vendors)
            except QuantityError as error:
                self.wrong(f"{field}.{printable(resource)}", f"{error}; this amount is left out")
                continue
            if name in origin:
                message = f"is added to {origin[name]}: a queue counts the cards of all vendors together"
                self.problems.warning(self.item.where, f"{field}.{printable(resource)}", message)
            origin[name] = printable(resource)
            result[name] = min(result.get(name, 0) + converted, UNLIMITED_QUOTA)
        return result

    def annotation(self, key: str, form: type[Any], example: str) -> Any:
        """The JSON in an annotation, if it has this form; else the empty form, with an error."""
        text = self.meta.annotations.get(key, "")
        if not text:
            return form()
        field = f"metadata.annotations.{key}"
        if len(text) > bounds.REQUEST_ANNOTATION.most:
            self.wrong(field, f"{bounds.REQUEST_ANNOTATION.exceeded(len(text))}; it is left out")
            return form()
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, form):
            self.wrong(field, f"{printable(text, 60)!r} is not read; write JSON such as {example}")
            return form()
        return value

    def duration(self, field: str, text: str) -> float:
        """Seconds of a Go duration: `1h30m` is 5400."""
        if not text:
            return 0.0
        seconds = duration_of(text)
        if seconds is None:
            self.wrong(field, f"{printable(text, 40)!r} is no duration; write one such as 30s, 5m or 1h30m")
        return seconds or 0.0


def _converted(resource: str, value: Quantity, vendors: Vendors) -> tuple[str, int]:
    """(name in the model, amount in its unit). Raises QuantityError."""
    kind, model = gpu_amount(resource)
    row = next(iter(vendors.concerned((resource,))), None)
    if row is not None and resource not in (row.count, row.memory, row.core):
        raise QuantityError(f"queues do not count {resource}; write {row.memory or row.count} instead")
    if kind:
        name = f"{kind}/{model[: bounds.CARD_NAME.most]}" if model else kind
    elif row is not None:
        kind = name = {row.count: GPUS, row.memory: GPU_MEMORY, row.core: GPU_COMPUTE}[resource]
    else:
        return resource, amount(resource, value)
    if kind == GPU_MEMORY:
        factor = row.memory_factor if row is not None else 1
        return name, _checked(quota_memory(value, factor), value)
    unit = WHOLE_CARD if kind == GPUS else MILLI_PER_CORE  # cards, or per cent of a card
    return name, _checked(quantity.parse(text_of(value), unit), value)


def model_amounts(given: Mapping[str, Quantity], vendors: Vendors) -> dict[str, int]:
    """A resource list by the model's names; what cannot be read is left out."""
    result: dict[str, int] = {}
    for resource, value in given.items():
        try:
            name, amount_ = _converted(resource, value, vendors)
        except QuantityError:
            continue
        result[name] = result.get(name, 0) + amount_
    return result


def names_in(lists: Iterable[Mapping[str, Quantity]], vendors: Vendors) -> dict[str, str]:
    """The model's name of a resource -> the name by which the object's own lists call it, the first that does."""
    found: dict[str, str] = {}
    for resource in (resource for given in lists for resource in given):
        for name in model_amounts({resource: 0}, vendors):
            found.setdefault(name, resource)
    return found


def written(name: str, resource: str, amount_: int, vendors: Vendors) -> str:
    """The amount of a resource of the model as a quantity of the resource that the object names."""
    kind, _ = gpu_amount(name)
    if name == CPU or kind == GPUS:
        return f"{amount_ // 1000}" if amount_ % 1000 == 0 else f"{amount_}m"
    if kind == GPU_COMPUTE:
        return str(-(-amount_ // MILLI_PER_CORE))
    row = next(iter(vendors.concerned((resource,))), None)
    if kind == GPU_MEMORY and row is not None:
        return str(-(-amount_ // row.memory_factor))
    return str(amount_)


def _checked(converted: int, value: Quantity) -> int:
    if converted < 0:
        raise QuantityError(f"{printable(text_of(value), 40)!r} is negative; write 0 or more")
    if converted > bounds.AMOUNT.most:
        raise QuantityError(f"{printable(text_of(value), 40)!r} is more than any cluster has; is the unit right?")
    return converted


# ---- the four kinds ---------------------------------------------------------------------------------------------


def _elastic_quota(reading: _Reading) -> Queue:
    """An ElasticQuota of scheduler-plugins: the quota of its namespace."""
    spec, namespace = reading.value.spec, reading.item.namespace
    return Queue(
        queue_names.elastic_quota(namespace, reading.item.name),
        "capacity",
        namespaces=(namespace,),
        guarantee=reading.amounts("spec.min", spec.min),
        ceiling=reading.amounts("spec.max", spec.max),
        created=reading.created,
    )


def _koordinator(reading: _Reading) -> Queue | None:
    """An ElasticQuota of Koordinator: a node of a tree. Its names are unique in the cluster.

    The trees of several `tree-id`s are branches of one tree: a root with `total-resource` has it as its ceiling.
    """
    name, meta, spec = reading.item.name, reading.meta, reading.value.spec
    if name == ROOT_QUOTAS[0]:
        return None
    parent = meta.labels.get(PARENT_LABEL, "")
    if meta.labels.get(IS_ROOT) == "true" or parent in ROOT_QUOTAS:
        parent = ""
    quantities: Quantities = {**reading.annotation(TOTAL_RESOURCE, dict, '{"cpu": "96"}'), **spec.max}
    return Queue(
        queue_names.koordinator(name),
        "koordinator",
        parent=queue_names.koordinator(parent) if parent else "",
        namespaces=_koordinator_namespaces(reading),
        guarantee=reading.amounts("spec.min", spec.min),
        ceiling=reading.amounts("spec.max", _quantities(quantities)),
        weight=reading.amounts(
            f"metadata.annotations.{SHARED_WEIGHT}",
            _quantities(reading.annotation(SHARED_WEIGHT, dict, '{"cpu": "40"}')),
        ),
        lends=meta.labels.get(ALLOW_LENT) != "false",
        created=reading.created,
    )


def _quantities(given: Mapping[str, Any]) -> Quantities:
    """JSON as a resource list; what is no quantity becomes text, which is then reported."""
    return {
        str(name): value if isinstance(value, (str, int, float)) and not isinstance(value, bool) else str(value)
        for name, value in given.items()
    }


def _koordinator_namespaces(reading: _Reading) -> tuple[str, ...]:
    """Namespaces of the annotation; a quota with the name of its namespace is also that namespace's."""
    given = reading.annotation(QUOTA_NAMESPACES, list, '["team-a"]')
    named = [name for name in given if isinstance(name, str)]
    if len(named) > bounds.QUEUE_NAMESPACES.most:
        said = bounds.QUEUE_NAMESPACES.exceeded(len(named))
        field = f"metadata.annotations.{QUOTA_NAMESPACES}"
        reading.problems.warning(reading.item.where, field, f"{said}; {bounds.QUEUE_NAMESPACES.beyond}")
        named = named[: bounds.QUEUE_NAMESPACES.most]
    if reading.item.name == reading.item.namespace:
        named.append(reading.item.namespace)
    return tuple(dict.fromkeys(named))


def _volcano(reading: _Reading) -> Queue | None:
    """A Queue of Volcano. `root` is the tree's root.

    Volcano reserves `guarantee` and lends the rest of `deserved`: the larger amounts are the guarantee here.
    """
    if reading.item.name == "root":
        return None
    spec: objects.VolcanoQueueSpec = reading.value.spec
    deserved = reading.amounts("spec.deserved", spec.deserved)
    reserved = reading.amounts("spec.guarantee.resource", spec.guarantee.resource)
    ceiling = reading.amounts("spec.capability", spec.capability)
    if spec.weight < 1:
        reading.wrong("spec.weight", f"{spec.weight} is no weight; write 1 or more")
    weighted = dict.fromkeys((CPU, MEMORY, GPUS, *deserved, *reserved, *ceiling))
    return Queue(
        queue_names.volcano(reading.item.name),
        "volcano",
        parent="" if spec.parent in ("", "root") else queue_names.volcano(spec.parent),
        guarantee={name: max(deserved.get(name, 0), reserved.get(name, 0)) for name in {**reserved, **deserved}},
        ceiling=ceiling,
        weight=dict.fromkeys(weighted, max(spec.weight, 1)),
        priority=spec.priority,
        created=reading.created,
        reclaim_after=0.0 if spec.reclaimable else NEVER,
        reserved=reserved,
    )


def _kai(reading: _Reading) -> Queue:
    """A Queue of KAI: GPUs in fractions, CPU in millicores, memory in megabytes."""
    spec: objects.KaiQueueSpec = reading.value.spec
    guarantee: dict[str, int] = {}
    ceiling: dict[str, int] = {}
    weight: dict[str, int] = {}
    given = spec.resources
    for word, name, unit, part in (
        ("gpu", GPUS, WHOLE_CARD, given.gpu),
        ("cpu", CPU, 1, given.cpu),
        ("memory", MEMORY, MEGABYTE, given.memory),
    ):
        field = f"spec.resources.{word}"
        guarantee[name] = _kai_amount(reading, f"{field}.quota", part.quota, unit)
        limit = _kai_amount(reading, f"{field}.limit", part.limit, unit)
        if part.limit != -1:
            ceiling[name] = limit
        weight[name] = _kai_amount(reading, f"{field}.overQuotaWeight", part.over_quota_weight, MILLI_WEIGHTS)
        if part.lending_limit:
            message = "is read as no limit: a queue lends all that it does not use, or with 0 nothing"
            reading.problems.warning(reading.item.where, f"{field}.lendingLimit", message)
    return Queue(
        queue_names.kai(reading.item.name),
        "kai",
        parent=queue_names.kai(spec.parent_queue) if spec.parent_queue else "",
        guarantee=guarantee,
        ceiling=ceiling,
        weight=weight,
        lends=given.gpu.lending_limit != 0,
        priority=spec.priority,
        created=reading.created,
        preempt_after=reading.duration("spec.preemptMinRuntime", spec.preempt_min_runtime),
        reclaim_after=reading.duration("spec.reclaimMinRuntime", spec.reclaim_min_runtime),
    )


def _kai_amount(reading: _Reading, field: str, value: float, unit: int) -> int:
    if value == -1:
        return UNLIMITED_QUOTA
    if not math.isfinite(value) or value < 0 or value * unit > UNLIMITED_QUOTA:
        reading.wrong(field, f"{value:g} is no amount; write 0 or more, or -1 for no limit")
        return 0
    return round(value * unit)


_READERS: dict[str, Callable[[_Reading], Queue | None]] = {
    objects.SCHEDULER_PLUGINS: _elastic_quota,
    objects.KOORDINATOR: _koordinator,
    objects.VOLCANO_GROUP: _volcano,
    objects.KAI_GROUP: _kai,
}
