"""Node objects and pools of our cluster file → the model's nodes: capacity, cards, links and the enforcer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from dovetail.kube.conversion.alignment import stated_alignment
from dovetail.kube.conversion.amounts import amount, amounts
from dovetail.kube.conversion.bounded import bounded_node
from dovetail.kube.conversion.discovery import Discovered, NodeProblems, discover
from dovetail.kube.conversion.plugins import NO_PLUGIN, plugin_cards
from dovetail.kube.conversion.register import MILLI_PER_CORE, cordoned, pair_scores, registered
from dovetail.kube.conversion.settled import NO_DOUBT, CardSource, card_source_of, why_unsettled
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.files.decode import Found
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.bounds import CARDS_PER_NODE
from dovetail.kube.objects.pools import Gpus, Pool
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.device import Device
from dovetail.model.node import CPU, MEMORY, PODS, STORAGE, Alignment, Enforcer, Node, Taint
from dovetail.model.quantity import QuantityError

ENFORCER = "dovetail.dev/enforcer"
HOSTNAME = "kubernetes.io/hostname"  # kubelet sets it on every node
DEFAULT_PODS = 110  # kubelet's --max-pods
NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
MOST_POOL_NODES = 100_000  # of one pool
MOST_POOL_CARDS = 1_000_000
NVLINK, SAME_NUMA, ACROSS = 600, 20, 10  # pair scores, see pools.py


class NodeReading(NamedTuple):
    """A node, and the source of its cards."""

    node: Node
    source: CardSource
    declared: bool  # the node itself states its enforcer


def node_from(found: Found, vendors: Vendors, problems: Problems) -> Node:
    """A Kubernetes Node."""
    return read_node(found, vendors, problems).node


def read_node(found: Found, vendors: Vendors, problems: Problems) -> NodeReading:
    """A Kubernetes Node, and the source of its cards."""
    source = bounded_node(found.value, found.where, vendors, problems)
    meta, where = source.metadata, found.where
    allocatable = _allocatable(source.status, where, problems)
    telling = [row for row in vendors.rows if row.register in meta.annotations]
    devices = tuple(d for row in telling for d in registered(meta.annotations, row, where, problems))
    plain = Discovered()
    other = NO_PLUGIN if devices else plugin_cards(found.name, _capacity(source.status), allocatable, vendors)
    devices = devices or other.devices
    if devices:
        devices = _without_repeats(devices, where, problems)
        out = cordoned(meta.annotations, devices, where, problems)
        devices = tuple(msgspec.structs.replace(d, cordoned=True) if d.uuid in out else d for d in devices)
    elif not other.doubt and not any(meta.annotations.get(row.register) for row in vendors.rows if row.register):
        plain = discover(found.name, meta.labels, allocatable, vendors, NodeProblems(where, problems))
    enforcer = _enforcer(meta, Enforcer.STOCK if plain.devices or plain.mig else other.enforcer, where, problems)
    declared = bool(meta.annotations.get(ENFORCER) or meta.labels.get(ENFORCER))
    card_source = card_source_of(meta, devices, plain, vendors)
    why = other.doubt or why_unsettled(meta, allocatable, devices, card_source, vendors)
    if why and not (declared and card_source is not CardSource.REGISTER):
        problems.warning(where, why.field, f"{why.text}: no new GPU pods; {why.advice}")
    else:
        why = NO_DOUBT
    devices = devices or _slots_for(enforcer, plain.devices, vendors)
    _warn_of_readiness(source, where, problems)
    node = Node(
        name=found.name,
        allocatable=_with_counts(allocatable, devices, vendors),
        devices=devices,
        links=_links(meta.annotations, devices, vendors, where, problems),
        labels=meta.labels,
        taints=tuple(_taints(source.spec.taints, where, problems)),
        unschedulable=source.spec.unschedulable,
        enforcer=enforcer,
        images={name: image.size_bytes for image in source.status.images for name in image.names},
        mig=plain.mig,
        unsettled=str(why),
        alignment=stated_alignment(meta, where, problems) or Alignment.NONE,
    )
    return NodeReading(node, card_source, declared)


def _warn_of_readiness(source: objects.Node, where: str, problems: Problems) -> None:
    """Warn of a node that is not ready and has no taint.

    kube-scheduler checks taints only; the node controller sets them on nodes that are not ready.
    """
    status = next((c.status for c in source.status.conditions if c.type == "Ready"), "True")
    if status != "True" and not any(taint.key in NOT_READY for taint in source.spec.taints):
        message = (
            f"is {printable(status)!r}, but no taint says so: kube-scheduler would still use the node, and so do we"
        )
        problems.warning(where, "status.conditions.Ready", message)


def _allocatable(status: objects.NodeStatus, where: str, problems: Problems) -> dict[str, int]:
    given = status.allocatable if status.allocatable is not None else status.capacity
    path = "status.allocatable" if status.allocatable is not None else "status.capacity"
    if not given:
        message = "states neither allocatable nor capacity; only pods that ask for no CPU and memory fit"
        problems.warning(where, "status.allocatable", message)
    result, _ = amounts(where, path, given or {}, problems)  # a wrong amount counts as none
    result.setdefault(PODS, DEFAULT_PODS)
    return result


def _capacity(status: objects.NodeStatus) -> dict[str, int]:
    """All that the node has, also what a broken plugin or card cannot give now. A file may state allocatable only."""
    given, _ = amounts("", "", status.capacity or status.allocatable or {}, Problems())
    return given


def _without_repeats(devices: tuple[Device, ...], where: str, problems: Problems) -> tuple[Device, ...]:
    unique: dict[str, Device] = {}
    for device in devices:
        if device.uuid in unique:
            problems.warning(where, "metadata.annotations", f"card {device.uuid} is registered by two vendors")
        unique.setdefault(device.uuid, device)
    return tuple(unique.values())[: CARDS_PER_NODE.most]


def _enforcer(meta: objects.Meta, found: Enforcer, where: str, problems: Problems) -> Enforcer:
    for name, texts in (("annotations", meta.annotations), ("labels", meta.labels)):
        text = texts.get(ENFORCER, "")
        if not text:
            continue
        if text in tuple(Enforcer):
            return Enforcer(text)
        known = ", ".join(Enforcer)
        message = f"{printable(text)!r} is no enforcer; write one of {known}. Until then whole cards only"
        problems.error(where, f"metadata.{name}.{ENFORCER}", message)
        return Enforcer.STOCK  # the enforcer with the fewest guarantees
    return found


def _slots_for(enforcer: Enforcer, devices: tuple[Device, ...], vendors: Vendors) -> tuple[Device, ...]:
    """The cards with their slots. Discovered cards are whole, unless the enforcer can share them."""
    if enforcer is Enforcer.STOCK:
        return devices
    return tuple(
        msgspec.structs.replace(device, slots=vendors.by_word[device.vendor].split_count) for device in devices
    )


def _with_counts(allocatable: dict[str, int], devices: Sequence[Device], vendors: Vendors) -> dict[str, int]:
    """The resources with counts.

    If a node registers cards but has no count resource (yet), it offers all their slots.
    """
    slots: Counter[str] = Counter()
    for device in devices:
        slots[device.vendor] += device.slots
    for word, count in slots.items():
        if count and vendors.by_word[word].count:
            allocatable.setdefault(vendors.by_word[word].count, count)
    return allocatable


def _links(
    annotations: Mapping[str, str], devices: Sequence[Device], vendors: Vendors, where: str, problems: Problems
) -> tuple[tuple[int, ...], ...]:
    for vendor in [row for row in vendors.rows if row.score in annotations]:
        links = pair_scores(annotations, vendor, devices, where, problems) if devices else ()
        if links:
            return links
    return ()


def _taints(taints: Sequence[objects.Taint | str], where: str, problems: Problems) -> Iterator[Taint]:
    for number, given in enumerate(taints):
        if isinstance(given, str):
            name, _, effect = given.partition(":")
            key, _, value = name.partition("=")
            taint = Taint(key, value, effect)
        else:
            taint = Taint(given.key, given.value, given.effect)
        if taint.effect not in EFFECTS or not taint.key:
            message = f"{printable(str(taint))!r} is no taint; write key, value and an effect of {', '.join(EFFECTS)}"
            problems.error(where, f"taints[{number}]", message)
        else:
            yield taint


def nodes_from_pool(pool: Pool, path: str, where: str, vendors: Vendors, problems: Problems) -> list[Node]:
    """The nodes of one pool of our cluster file."""
    before = problems.fatal_errors
    if pool.count is not None and not 0 <= pool.count <= MOST_POOL_NODES:
        problems.fatal(where, f"{path}.count", f"must be between 0 and {MOST_POOL_NODES}")
    if not pool.name or len(pool.name) > 240 or "/" in pool.name:
        problems.fatal(where, f"{path}.name", "must be the name of a node")
    if pool.enforcer not in tuple(Enforcer):
        problems.fatal(where, f"{path}.enforcer", f"must be one of {', '.join(Enforcer)}")
    allocatable = _pool_amounts(pool, path, where, problems)
    kinds = pool.gpus if isinstance(pool.gpus, list) else [pool.gpus]
    for number, gpus in enumerate(kinds):
        own_path = f"{path}.gpus[{number}]" if isinstance(pool.gpus, list) else f"{path}.gpus"
        _check_gpus(gpus, own_path, where, vendors, problems)
    cards = sum(gpus.count for gpus in kinds)
    if cards > CARDS_PER_NODE.most or cards * (pool.count or 1) > MOST_POOL_CARDS:
        problems.fatal(
            where, f"{path}.gpus", f"at most {CARDS_PER_NODE.most} cards per node and {MOST_POOL_CARDS} per pool"
        )
    if problems.fatal_errors > before:
        return []
    taints = tuple(_taints(pool.taints, where, problems))
    links = _pool_links(kinds)
    names = [pool.name] if pool.count is None else [f"{pool.name}-{i}" for i in range(pool.count)]
    nodes = []
    for name in names:
        devices = tuple(_pool_devices(name, kinds, pool.enforcer, vendors))
        own = _with_counts(dict(allocatable), devices, vendors)
        labels = {HOSTNAME: name, **pool.labels}
        nodes.append(Node(name, own, devices, links, labels, taints, enforcer=Enforcer(pool.enforcer)))
    return nodes


def _pool_amounts(pool: Pool, path: str, where: str, problems: Problems) -> dict[str, int]:
    given = {CPU: pool.cpu, MEMORY: pool.memory, STORAGE: pool.storage, PODS: pool.pods}
    result = {}
    for name, value in (*given.items(), *pool.extended.items()):
        try:
            result[name] = amount(name, value)
        except QuantityError as error:
            field = f"extended.{name}" if name not in given else {STORAGE: "storage"}.get(name, name)
            problems.fatal(where, f"{path}.{field}", str(error))
    return result


def _check_gpus(gpus: Gpus, path: str, where: str, vendors: Vendors, problems: Problems) -> None:
    if not 0 <= gpus.count <= CARDS_PER_NODE.most // 2:
        problems.fatal(where, f"{path}.count", f"must be between 0 and {CARDS_PER_NODE.most // 2}")
        return
    if not gpus.model.strip() or len(gpus.model) > 200:
        problems.fatal(where, f"{path}.model", "must be a product name such as NVIDIA A100-SXM4-80GB")
    for name, value in (("slots", 1 if gpus.slots is None else gpus.slots), ("compute", gpus.compute)):
        if not 1 <= value <= 100_000:
            problems.fatal(where, f"{path}.{name}", "must be between 1 and 100000")
    if gpus.vendor not in vendors.by_word:
        problems.fatal(where, f"{path}.vendor", f"must be one of {', '.join(vendors.by_word)}")
    try:
        if not 0 < mib(gpus) < 2**31:
            problems.fatal(where, f"{path}.memory", "must be MiB of one card, such as 81920, or a quantity: 80Gi")
    except QuantityError as error:
        problems.fatal(where, f"{path}.memory", str(error))
    if isinstance(gpus.numa, list) and len(gpus.numa) != gpus.count:
        problems.fatal(where, f"{path}.numa", f"has {len(gpus.numa)} entries for {gpus.count} cards")
    if any(not 0 <= numa <= 1024 for numa in numa_of(gpus)):
        problems.fatal(where, f"{path}.numa", "must be numbers between 0 and 1024")
    if not _links_make_sense(gpus):
        wanted = "nvlink, pcie, groups such as [[0, 1], [2, 3]], or a symmetric matrix of pair scores"
        problems.fatal(where, f"{path}.links", f"must be {wanted}")


def mib(gpus: Gpus) -> int:
    """Memory of one card in MiB: a plain integer is MiB, a number with a unit is bytes."""
    if isinstance(gpus.memory, int):
        return gpus.memory
    if isinstance(gpus.memory, str) and gpus.memory.strip().isdigit():
        return amount(PODS, gpus.memory)
    return amount(MEMORY, gpus.memory) >> 20


def numa_of(gpus: Gpus) -> list[int]:
    return gpus.numa if isinstance(gpus.numa, list) else [gpus.numa] * gpus.count


def _links_make_sense(gpus: Gpus) -> bool:
    links, count = gpus.links, gpus.count
    if isinstance(links, str):
        return links in ("", "nvlink", "pcie")
    if not all(isinstance(row, list) for row in links):
        return False
    flat = [score for row in links for score in row]
    if not all(type(score) is int and 0 <= score < 2**31 for score in flat):
        return False
    if sorted(flat) == list(range(count)):
        return True  # groups: every card once
    square = len(links) == count and all(len(row) == count for row in links)
    return square and all(links[a][b] == links[b][a] for a in range(count) for b in range(a))


def _pool_links(kinds: Sequence[Gpus]) -> tuple[tuple[int, ...], ...]:
    if not any(gpus.links for gpus in kinds):
        return ()
    numa = [domain for gpus in kinds for domain in numa_of(gpus)]
    table = [[SAME_NUMA if a == b else ACROSS for b in numa] for a in numa]
    first = 0
    for gpus in kinds:
        links, last = gpus.links, first + gpus.count
        if isinstance(links, list) and len(links) == gpus.count and all(len(row) == gpus.count for row in links):
            for a, row in enumerate(links):
                table[first + a][first:last] = row
        elif links != "pcie":
            groups = links if isinstance(links, list) else [range(gpus.count)] if links else []
            for a, b in ((a, b) for group in groups for a in group for b in group):
                table[first + a][first + b] = NVLINK
        first = last
    return tuple(tuple(0 if a == b else score for b, score in enumerate(row)) for a, row in enumerate(table))


def _pool_devices(node: str, kinds: Sequence[Gpus], enforcer: str, vendors: Vendors) -> Iterator[Device]:
    index = 0
    for gpus in kinds:
        slots = gpus.slots or vendors.by_word[gpus.vendor].split_count
        if enforcer == Enforcer.STOCK:
            slots = 1
        for numa in numa_of(gpus):
            memory, compute = mib(gpus), gpus.compute * MILLI_PER_CORE
            yield Device(f"GPU-{node}-{index}", index, gpus.vendor, gpus.model.strip(), memory, compute, slots, numa)
            index += 1
