"""Values shared by the readers of other systems' device plugins (gpushare.py, gpu_manager.py)."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.kube.conversion.amounts import text_of
from dovetail.kube.conversion.vendors import Vendor
from dovetail.kube.objects.bounds import CARD_NUMBER
from dovetail.kube.objects.core import Resources
from dovetail.kube.objects.problems import printable
from dovetail.model import quantity
from dovetail.model.decision import Share
from dovetail.model.node import Node


class AskError(ValueError):
    """The container's request is wrong: (field, message)."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True, slots=True)
class PluginCards:
    """The cards of a node by the counts that its plugin reports; all of them are equal."""

    count: int
    memory_mib: int = 0  # of one card
    slots: int = 0
    wrong_field: str = ""  # the field that shows why there are none
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Handout:
    """The cards of one vendor that a Binding gives to a pod."""

    shares: tuple[Share, ...]
    node: Node
    vendor: Vendor
    init_containers: int  # plugins count containers without them
    nanoseconds: int  # since 1970

    def index(self, uuid: str) -> int:
        return next(device.index for device in self.node.devices if device.uuid == uuid)


def stated(resources: Resources, name: str, factor: int = 1) -> int:
    """The whole number that the container states, limits before requests; 0 = none. Raises AskError.

    `factor`: what one of it is, in MiB; no card has more than `CARD_NUMBER`.
    """
    value = resources.limits.get(name, resources.requests.get(name))
    if value is None:
        return 0
    try:
        text = text_of(value)
        amount = quantity.parse(text)
        if quantity.is_whole(text) and 0 <= amount <= CARD_NUMBER.most // factor:
            return amount
    except quantity.QuantityError as error:
        raise AskError(name, str(error)) from None
    raise AskError(name, f"{printable(text, 40)} is no whole number between 0 and {CARD_NUMBER.most // factor:,}")
