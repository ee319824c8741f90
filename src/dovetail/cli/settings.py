"""Which policies and names are in force: command line before configuration before defaults."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec

from dovetail import config as configuration
from dovetail.cli.errors import Refused
from dovetail.cli.options import Asked
from dovetail.kube.device_config import read_device_config
from dovetail.kube.policies import PolicyError, not_used, parse_device_policy, parse_node_policy
from dovetail.kube.problems import Problems
from dovetail.kube.settings import Settings
from dovetail.model.pod import DEFAULT_PROFILE, PreferenceWeights, Profile
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

KNOWN = Settings(
    node_policies=frozenset(NODE_POLICIES),
    device_policies=frozenset(DEVICE_POLICIES),
    joint_policies=frozenset(name for name, policy in NODE_POLICIES.items() if policy.offer is not None),
)


def settle(asked: Asked, problems: Problems) -> tuple[configuration.Config, Settings]:
    """The configuration, and the settings of pods that say nothing themselves."""
    try:
        config = configuration.load(Path(asked.config)) if asked.config else configuration.DEFAULT
    except configuration.ConfigError as error:
        raise Refused(str(error)) from error
    node = asked.node_policy or config.node_policy or DEFAULT_PROFILE.node
    chain = asked.gpu_policy or config.gpu_policy or ",".join(DEFAULT_PROFILE.device)
    source = "--node-policy" if asked.node_policy else f"{asked.config}: nodePolicy"
    try:
        of_node = parse_node_policy(node.strip(), KNOWN.node_policies)
        source = "--gpu-policy" if asked.gpu_policy else f"{asked.config}: gpuPolicy"
        of_device = parse_device_policy(chain, KNOWN.device_policies)
    except PolicyError as error:
        raise Refused(f"{source}: {error}") from error
    if of_node in KNOWN.joint_policies and (asked.gpu_policy or config.gpu_policy):
        problems.warning(source, "", not_used(of_node))
    return config, dataclasses.replace(KNOWN, profile=Profile(of_node, of_device))


def with_vendors(settings: Settings, path: str | None, problems: Problems) -> Settings:
    """HAMi's device configuration says how resources are called, where there is one."""
    if path is None:
        return settings
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    vendors = read_device_config(path, text, problems)
    problems.stop_if_fatal()
    return dataclasses.replace(settings, vendors=vendors)


def scheduler_profiles(
    config: configuration.Config, settings: Settings, names: tuple[str, ...], source: str
) -> dict[str, Settings]:
    """Scheduler name -> settings: those of the configuration, and the default for names only the command line has."""
    given = {
        name: config.schedulers.get(name, configuration.SchedulerProfile()) for name in (*config.schedulers, *names)
    }
    return {name: _profile(name, one, settings, source) for name, one in given.items()}


def _profile(name: str, given: configuration.SchedulerProfile, settings: Settings, source: str) -> Settings:
    where = f"{source}: schedulers.{name}"
    profile = settings.profile
    try:
        if given.node_policy is not None:
            profile = dataclasses.replace(profile, node=parse_node_policy(given.node_policy, KNOWN.node_policies))
        if given.gpu_policy is not None:
            chain = parse_device_policy(given.gpu_policy, KNOWN.device_policies)
            profile = dataclasses.replace(profile, device=chain)
    except PolicyError as error:
        raise Refused(f"{where}: {error}") from error
    weights = msgspec.structs.asdict(given.preference_weights)
    if any(not 0 <= weight <= 1_000 for weight in (*weights.values(), given.policy_weight)):
        raise Refused(f"{where}: weights are whole numbers from 0 to 1000")
    profile = dataclasses.replace(profile, preferences=PreferenceWeights(**weights), policy_weight=given.policy_weight)
    return dataclasses.replace(settings, profile=profile)
