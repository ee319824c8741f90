"""Reads a journal as what happened, and compares it with other policies."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from dovetail.cli.journals import JournalReader
from dovetail.cli.options import ClusterOptions
from dovetail.cli.settings import settle
from dovetail.kube.objects.problems import Problems
from dovetail.model.pod import Profile
from dovetail.whatif.happenings import happenings
from dovetail.whatif.policy_trials import under
from dovetail.whatif.worlds import WorldsReport, compare_worlds


@dataclass(frozen=True, slots=True)
class OtherPolicies:
    """The policies to compare with; None = those of the pods."""

    profile: Profile | None
    arguments: dict[str, dict[str, object]] | None
    title: str


def wanted(policy: str | None, node: str | None, device: str | None, config: str | None) -> OtherPolicies:
    """The policies of the options. Raises Refused."""
    if policy:
        first, _, second = policy.partition("/")
        node, device = node or first, device or second or None
    if not (node or device or config):
        return OtherPolicies(None, None, "the same policies")
    read, settings = settle(ClusterOptions(node_policy=node, gpu_policy=device, config=config), Problems())
    arguments = {name: dict(given) for name, given in read.policy_arguments.items()} if config else None
    profile = settings.profile if node or device or read.node_policy or read.gpu_policy else None
    title = f"{profile.node} × {','.join(profile.device)}" if profile else f"the arguments of {config}"
    return OtherPolicies(profile, arguments, title)


def compare(journal: JournalReader, asked: OtherPolicies) -> WorldsReport | None:
    settings = journal.files[0].header.settings
    other = settings
    if asked.arguments is not None:
        other = msgspec.structs.replace(settings, arguments=asked.arguments)
    return compare_worlds(lambda: happenings(journal.parts()), settings, other, under(asked.profile))
