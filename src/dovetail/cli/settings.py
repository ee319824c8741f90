"""Resolves policies and names: the command line overrides the configuration, which overrides the defaults."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec

from dovetail import config as configuration
from dovetail import files
from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions
from dovetail.kube.conversion.device_config import read_device_config
from dovetail.kube.conversion.gangs import WAIT
from dovetail.kube.conversion.policies import PolicyError, not_used, parse_device_policy, parse_node_policy
from dovetail.kube.conversion.seals import SealKeyError, Seals, keys_from
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.topology_rules import is_node_label
from dovetail.kube.objects.bounds import TOPOLOGY_LEVELS
from dovetail.kube.objects.problems import Problems
from dovetail.model.pod import DEFAULT_PROFILE, PreferenceWeights, Profile
from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

KNOWN = Settings(
    node_policies=frozenset(NODE_POLICIES),
    device_policies=frozenset(DEVICE_POLICIES),
    joint_policies=frozenset(name for name, policy in NODE_POLICIES.items() if policy.offer is not None),
    fallbacks={name: policy.fallback for name, policy in NODE_POLICIES.items() if policy.fallback},
)


def settle(asked: ClusterOptions, problems: Problems) -> tuple[configuration.Config, Settings]:
    """The configuration, and the settings of pods that state none themselves."""
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
    profile = Profile(of_node, of_device)
    cpu_profile = _cpu_profile(config.without_devices, profile, f"{asked.config}: withoutDevices")
    schedulers = KNOWN.webhooks_schedulers.union(config.schedulers)
    unknown_group = asked.unknown_pod_group or config.gangs.unknown_group or WAIT
    settings = dataclasses.replace(KNOWN, profile=profile, cpu_profile=cpu_profile, webhooks_schedulers=schedulers)
    own = frozenset(config.schedulers) or KNOWN.schedulers
    allowed = _allowed(asked, config)
    settings = dataclasses.replace(settings, unknown_group=unknown_group, schedulers=own, allowed_policies=allowed)
    own_queues, half_life = configuration.queues(config, str(asked.config)), config.queue_half_life_seconds
    settings = dataclasses.replace(settings, queues=own_queues, queue_half_life=half_life)
    vendors = settings.vendors.with_gpushare_unit(config.gpushare_memory_unit)
    return config, dataclasses.replace(settings, vendors=vendors, topology=_topology(config, str(asked.config)))


def _topology(config: configuration.Config, source: str) -> tuple[str, ...]:
    """The levels of the configuration. Raises Refused for a level that is no node label."""
    for number, label in enumerate(config.topology):
        if not is_node_label(label) or label in config.topology[:number]:
            raise Refused(f"{source}: topology[{number}]: {label!r} is no node label, or stands there twice")
    if len(config.topology) > TOPOLOGY_LEVELS.most:
        raise Refused(f"{source}: topology: {TOPOLOGY_LEVELS.exceeded(len(config.topology))}")
    return tuple(config.topology)


def with_seals(settings: Settings, path: str | None, problems: Problems) -> Settings:
    """The settings with the keys of this file. No message contains a key.

    A missing file is a warning, because the Secret that it comes from is optional. A file that cannot be used is
    refused.
    """
    if path is None:
        return settings
    try:
        text = files.read_input(path, files.MAX_SETTINGS_BYTES).decode("utf-8")
        return dataclasses.replace(settings, seals=Seals(keys_from(text)))
    except FileNotFoundError:
        message = "is not there: records of cards are not sealed, and a changed record is found only while we run"
        problems.warning("--seal-key-file", path, message)
        return settings
    except SealKeyError as error:
        raise Refused(f"--seal-key-file {path}: {error}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise Refused(f"--seal-key-file {path}: cannot be read: {why}") from None


def _allowed(asked: ClusterOptions, config: configuration.Config) -> frozenset[str] | None:
    """The policies that pods may name; None = all. Raises Refused for an unknown policy."""
    given = asked.allowed_policies or config.allowed_policies
    source = "--allow-policy" if asked.allowed_policies else f"{asked.config}: allowedPolicies"
    for name in given or ():
        if name not in KNOWN.node_policies | KNOWN.device_policies:
            known = ", ".join(sorted(KNOWN.node_policies | KNOWN.device_policies))
            raise Refused(f"{source}: {name!r} is no policy; write one of {known}")
    return None if given is None else frozenset(given)


def with_vendors(settings: Settings, path: str | None, problems: Problems) -> Settings:
    """The settings with the resource names of HAMi's device configuration, if there is one."""
    if path is None:
        return settings
    try:
        text = files.read_input(path, files.MAX_SETTINGS_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    vendors = read_device_config(path, text, problems, settings.vendors)
    problems.stop_if_fatal()
    return dataclasses.replace(settings, vendors=vendors)


def scheduler_profiles(
    config: configuration.Config, settings: Settings, names: tuple[str, ...], source: str
) -> dict[str, Settings]:
    """Scheduler name -> settings: those of the configuration, and the defaults for names only on the command line."""
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
    cpu_profile = settings.cpu_profile
    if given.without_devices is not None:
        cpu_profile = _cpu_profile(given.without_devices, profile, f"{where}.withoutDevices")
    profile = dataclasses.replace(_weighed(given, profile, where), default_spread=given.default_spread)
    return dataclasses.replace(settings, profile=profile, cpu_profile=cpu_profile)


def _cpu_profile(given: configuration.CpuProfile, beside: Profile, where: str) -> Profile:
    """The profile of pods without devices. They use no cards, so the chain of device policies is that of other pods."""
    try:
        node = parse_node_policy(given.node_policy, KNOWN.node_policies)
    except PolicyError as error:
        raise Refused(f"{where}.nodePolicy: {error}") from error
    profile = Profile(node, beside.device, default_spread=given.default_spread)
    return _weighed(given, profile, where)


def _weighed(given: configuration.SchedulerProfile | configuration.CpuProfile, profile: Profile, where: str) -> Profile:
    weights = msgspec.structs.asdict(given.preference_weights)
    if any(not 0 <= weight <= 1_000 for weight in (*weights.values(), given.policy_weight)):
        raise Refused(f"{where}: weights are whole numbers from 0 to 1000")
    return dataclasses.replace(profile, preferences=PreferenceWeights(**weights), policy_weight=given.policy_weight)
