"""The lists of gangs, and of quotas and queues."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.cli.board import Board
from dovetail.cli.output.amounts import amount_of
from dovetail.cli.output.list_view import DASH, Item, ListColumn, ListView
from dovetail.engine.rights.queue_wording import amount_in_queue
from dovetail.model.gang import TopologyRule
from dovetail.model.pod import group_title
from dovetail.model.rights import GPU_COMPUTE, GPU_MEMORY, gpu_amount
from dovetail.whatif.overview import GangMembers


def gang_items(board: Board) -> Iterator[Item]:
    for gang in board.overview.gangs:
        namespace, _, name = group_title(gang.name).partition("/")
        yield {
            "namespace": namespace,
            "name": name,
            "bound": gang.bound,
            "minimum": gang.minimum,
            "total": gang.total,
            "state": _gang_state(gang),
            "roles": [
                {
                    "name": role.name,
                    "bound": role.running,
                    "minimum": role.minimum,
                    "topology": rule_text(role.topology),
                }
                for role in gang.roles
            ],
            "topology": rule_text(gang.topology),
            "nodes": list(gang.nodes),
        }


def _gang_state(gang: GangMembers) -> str:
    if gang.bound >= max(gang.minimum, 1):
        return "running" if gang.bound == gang.total else "running, some wait"
    return "below its minimum" if gang.bound else "waiting"


def rule_text(rule: TopologyRule) -> str:
    parts = [f"one {rule.required}"] if rule.required else []
    parts += [f"few {rule.preferred}"] if rule.preferred else []
    for spread in rule.spreads:
        parts += [f"{spread.level}>={spread.least_domains}"] if spread.least_domains else []
        parts += [f"{spread.level}<={spread.most_each}"] if spread.most_each else []
    return ", ".join(parts)


def _roles(item: Item) -> str:
    return ", ".join(f"{role['name']} {role['bound']}/{role['minimum']}" for role in item["roles"]) or DASH


LIST_OF_GANGS = ListView(
    "GangList",
    gang_items,
    (
        ListColumn("NAMESPACE", lambda item: item["namespace"]),
        ListColumn("GANG", lambda item: item["name"]),
        ListColumn("BOUND", lambda item: str(item["bound"]), right=True),
        ListColumn("MIN", lambda item: str(item["minimum"]) if item["minimum"] else DASH, right=True),
        ListColumn("TOTAL", lambda item: str(item["total"]), right=True),
        ListColumn("STATE", lambda item: item["state"]),
        ListColumn("TOPOLOGY", lambda item: item["topology"] or "anywhere"),
        ListColumn("ROLES", _roles, wide=True),
        ListColumn("NODES", lambda item: ",".join(item["nodes"]) or DASH, wide=True),
    ),
    lambda item: f"gang/{item['namespace']}/{item['name']}",
)


def quota_items(board: Board) -> Iterator[Item]:
    """Limits of namespaces, then the queues of the cluster."""
    for use in board.overview.quotas:
        yield {
            "kind": "ResourceQuota",
            "namespace": use.namespace,
            "name": use.quota,
            "resource": use.resource,
            "used": use.used,
            "guarantee": None,
            "ceiling": use.hard,
            "borrowed": 0,
            "lent": 0,
        }
    for queue in board.overview.queues:
        state = queue.state
        for resource in sorted({*state.used, *state.guarantee, *queue.ceiling}):
            yield {
                "kind": "Queue",
                "namespace": None,
                "name": queue.queue.name,
                "resource": resource,
                "used": state.used.get(resource, 0),
                "guarantee": state.guarantee.get(resource),
                "ceiling": queue.ceiling.get(resource),
                "borrowed": state.borrowed.get(resource, 0),
                "lent": state.lent.get(resource, 0),
            }


def _quota_amount(item: Item, key: str) -> str:
    amount, resource = item[key], item["resource"]
    if amount is None:
        return DASH
    if item["kind"] == "Queue":
        return amount_in_queue(resource, amount)
    kind, _ = gpu_amount(resource)
    unit = {GPU_MEMORY: " MiB", GPU_COMPUTE: " milli"}.get(kind)
    plain = resource.removeprefix("requests.").removeprefix("limits.")
    return f"{amount:,}{unit}" if unit else amount_of(plain, amount)


LIST_OF_QUOTAS = ListView(
    "QuotaList",
    quota_items,
    (
        ListColumn("KIND", lambda item: item["kind"]),
        ListColumn("NAMESPACE", lambda item: item["namespace"] or DASH),
        ListColumn("NAME", lambda item: item["name"]),
        ListColumn("RESOURCE", lambda item: item["resource"]),
        ListColumn("USED", lambda item: _quota_amount(item, "used"), right=True),
        ListColumn("GUARANTEE", lambda item: _quota_amount(item, "guarantee"), right=True),
        ListColumn("CEILING", lambda item: _quota_amount(item, "ceiling"), right=True),
        ListColumn("BORROWED", lambda item: _quota_amount(item, "borrowed"), right=True),
        ListColumn("LENT", lambda item: _quota_amount(item, "lent"), wide=True, right=True),
    ),
    lambda item: (
        f"{item['kind'].lower()}/{item['name']}/{item['resource']}"
        if item["namespace"] is None
        else f"{item['kind'].lower()}/{item['namespace']}/{item['name']}/{item['resource']}"
    ),
)
