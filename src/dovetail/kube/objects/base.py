"""What every object of Kubernetes has: metadata, and the rules by which objects are typed.

Null means absent, as in Kubernetes. Unknown fields are ignored.
"""

from __future__ import annotations

import msgspec

Quantity = str | int | float
Quantities = dict[str, Quantity]
Texts = dict[str, str]


class Struct(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Camel case outside, snake case inside; unknown fields are ignored, and written are fields that differ from the
    default."""


class OwnerReference(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Struct, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Texts = {}
    annotations: Texts = {}
    owner_references: list[OwnerReference] = []
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
