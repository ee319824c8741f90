"""Where the pods of a gang may be placed relative to each other, from annotations of ours on a pod or a PodGroup.

`dovetail.dev/topology-required` and `-preferred` have a node label, `-spread` has limits: `rack>=3, host<=8` is at
least three racks, and at most eight pods on each host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from dovetail.kube.objects.bounds import LABEL_NAME, REQUEST_ANNOTATION, TOPOLOGY_SPREADS
from dovetail.kube.objects.problems import printable
from dovetail.model.gang import ANYWHERE, DomainSpread, TopologyRule

OWN_REQUIRED, OWN_PREFERRED, OWN_SPREAD = "topology-required", "topology-preferred", "topology-spread"
OWN_DOMAIN = "dovetail.dev/"
ROLE_RULES = tuple(f"{OWN_DOMAIN}{name}" for name in (OWN_REQUIRED, OWN_PREFERRED, OWN_SPREAD))
# On pods that have a role: the rule of the whole gang, beside that of the role.
GANG_RULES = tuple(f"{OWN_DOMAIN}gang-{name}" for name in (OWN_REQUIRED, OWN_PREFERRED, OWN_SPREAD))
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z", re.ASCII)
_LIMIT = re.compile(r"\s*(?P<label>[^<>=\s]+)\s*(?P<sign>>=|<=)\s*(?P<number>[0-9]{1,6})\s*\Z", re.ASCII)
_BLANKS = re.compile(r"\s+", re.ASCII)
MOST_IN_LIMIT = 100_000  # domains or pods


class TopologyError(ValueError):
    """What is wrong with an annotation, and what to write instead. `key` is the annotation."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def rule_of(annotations: Mapping[str, str], keys: tuple[str, ...] = ROLE_RULES) -> TopologyRule:
    """The rule that these three annotations state. Raises TopologyError."""
    required, preferred, spread = (_text(annotations, key) for key in keys)
    if not required and not preferred and not spread:
        return ANYWHERE
    return _rule(keys, required, preferred, spread)


def _text(annotations: Mapping[str, str], key: str) -> str:
    """The annotation, bounded and with single blanks: rules are kept by their text. Raises TopologyError."""
    text = annotations.get(key, "")
    if len(text) > REQUEST_ANNOTATION.most:
        raise TopologyError(key, REQUEST_ANNOTATION.exceeded(len(text)))
    return _BLANKS.sub(" ", text.strip())


@lru_cache(maxsize=1_024)  # the pods of a gang state the same
def _rule(keys: tuple[str, ...], required: str, preferred: str, spread: str) -> TopologyRule:
    return TopologyRule(
        node_label(required, keys[0]) if required else "",
        node_label(preferred, keys[1]) if preferred else "",
        _spreads(spread, keys[2]) if spread else (),
    )


def is_node_label(text: str) -> bool:
    return len(text) <= LABEL_NAME.most and _LABEL.match(text) is not None


def node_label(text: str, key: str) -> str:
    """The name of a node label. Raises TopologyError."""
    if not is_node_label(text):
        message = f"{printable(text, 60)!r} is no node label; write one such as topology.kubernetes.io/rack"
        raise TopologyError(key, message)
    return text


def _spreads(text: str, key: str) -> tuple[DomainSpread, ...]:
    parts = text.split(",")
    if len(parts) > TOPOLOGY_SPREADS.most:
        raise TopologyError(key, TOPOLOGY_SPREADS.exceeded(len(parts)))
    found: dict[str, dict[str, int]] = {}  # label -> sign -> number, in the order of the text
    for part in parts:
        match = _LIMIT.match(part)
        if match is None or not 1 <= int(match["number"]) <= MOST_IN_LIMIT:
            message = (
                f"{printable(part.strip(), 60)!r} is no limit; write LABEL>=N (at least N domains) "
                "or LABEL<=N (at most N pods in each domain), separated by commas"
            )
            raise TopologyError(key, message)
        limits = found.setdefault(node_label(match["label"], key), {})
        if match["sign"] in limits:
            raise TopologyError(key, f"{match['label']}{match['sign']} stands there twice; keep one")
        limits[match["sign"]] = int(match["number"])
    return tuple(DomainSpread(label, limits.get(">=", 0), limits.get("<=", 0)) for label, limits in found.items())
