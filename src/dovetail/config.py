"""The configuration file: default policies and their arguments, profiles of schedulers, HAMi's device configuration.

It is strict: an unknown key is an error that names the key and the file.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal

import msgspec

from dovetail import files
from dovetail.model.pod import CPU_PROFILE, PREFERENCE_WEIGHTS

API_VERSION = "dovetail.dev/v1"
CONFIG_KIND = "Config"
LARGEST_FILE = 1 << 20


class ConfigError(Exception):
    """The file cannot be used; the message names the file and the key."""


class PreferenceWeights(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Weights of preferences, with the defaults of the model."""

    taints: int = PREFERENCE_WEIGHTS.taints
    node_affinity: int = PREFERENCE_WEIGHTS.node_affinity
    spread: int = PREFERENCE_WEIGHTS.spread
    pod_affinity: int = PREFERENCE_WEIGHTS.pod_affinity
    images: int = PREFERENCE_WEIGHTS.images


class CpuProfile(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How pods without devices are placed."""

    node_policy: str = CPU_PROFILE.node
    preference_weights: PreferenceWeights = PreferenceWeights()
    policy_weight: int = CPU_PROFILE.policy_weight
    default_spread: bool = CPU_PROFILE.default_spread


class SchedulerProfile(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How pods of one schedulerName are placed, if they state no policy themselves."""

    node_policy: str | None = None
    gpu_policy: str | None = None
    preference_weights: PreferenceWeights = PreferenceWeights()
    # 0: preferences first, and the policy decides among the best nodes; else the policy is one of the preferences
    policy_weight: int = 0
    default_spread: bool = False  # spread the pods of one Service or controller, as kube-scheduler does by default
    without_devices: CpuProfile | None = None  # None: that of the whole configuration


class GangConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Pods that name a PodGroup."""

    unknown_group: Literal["wait", "alone"] | None = None  # for a PodGroup that is not known; None: wait


class Config(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The content of the file. Everything except apiVersion and kind has a default."""

    api_version: str
    kind: str
    node_policy: str | None = None
    gpu_policy: str | None = None
    without_devices: CpuProfile = CpuProfile()
    allowed_policies: list[str] | None = None  # that pods may name; None: all
    policy_arguments: dict[str, dict[str, Any]] = {}  # policy name -> its arguments
    schedulers: dict[str, SchedulerProfile] = {}  # schedulerName -> profile, for `dovetail scheduler`
    device_config: str | None = None  # HAMi's device-config.yaml, relative to this file
    gangs: GangConfig = GangConfig()


DEFAULT = Config(api_version=API_VERSION, kind=CONFIG_KIND)


def load(path: Path) -> Config:
    """Read and check the file. `device_config` is resolved against the file's folder."""
    config = _convert(path, _parse(path))
    if config.api_version != API_VERSION:
        raise ConfigError(f"{path}: apiVersion is {config.api_version!r}, expected {API_VERSION!r}")
    if config.kind != CONFIG_KIND:
        raise ConfigError(f"{path}: kind is {config.kind!r}, expected {CONFIG_KIND!r}")
    if config.device_config is None:
        return config
    return msgspec.structs.replace(config, device_config=str(path.parent / config.device_config))


def _parse(path: Path) -> object:
    import yaml

    loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        raw = files.read_input(path, LARGEST_FILE)
    except files.TooLarge as error:
        raise ConfigError(f"{path}: larger than {LARGEST_FILE} bytes, which no configuration is") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror or error}") from error
    try:
        return yaml.load(raw, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}: not YAML{line}: {error.problem or error.context or 'syntax error'}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: not YAML: {str(error).splitlines()[0] if str(error) else 'syntax error'}"
        ) from error


def _convert(path: Path, document: object) -> Config:
    if not isinstance(document, dict):
        raise ConfigError(
            f"{path}: expected a mapping that starts with apiVersion: {API_VERSION} and kind: {CONFIG_KIND}"
        )
    known = [field.encode_name for field in msgspec.structs.fields(Config)]
    for key in document:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
            raise ConfigError(f"{path}: unknown key {key!r}; {hint}")
    try:
        return msgspec.convert(document, Config)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigError(f"{path}: {str(error).replace('$.', '')}") from error
