"""`python -m tests.live.load_aware_dovetail scheduler …`: `dovetail` with the two load-aware policies of the tests.

`coolest` takes the node with the least CPU load, `cool-card` the card with the least load: the simplest policies that
show which measurement arrived.
"""

from __future__ import annotations

from dataclasses import replace

from dovetail.cli import settings
from dovetail.cli.main import main
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES
from tests.policies.test_toy_load_aware import COOL_CARD, COOLEST


def add_policies() -> None:
    NODE_POLICIES[COOLEST.name] = COOLEST  # type: ignore[index]
    DEVICE_POLICIES[COOL_CARD.name] = COOL_CARD  # type: ignore[index]
    nodes, cards = frozenset(NODE_POLICIES), frozenset(DEVICE_POLICIES)
    settings.KNOWN = replace(settings.KNOWN, node_policies=nodes, device_policies=cards)


if __name__ == "__main__":
    add_policies()
    main()
