"""The configuration file: default policies and their arguments, profiles of schedulers, HAMi's device configuration.

It is strict: an unknown key is an error that names the key and the file.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from dovetail import files
from dovetail.model import quantity
from dovetail.model.device import type_tokens
from dovetail.model.node import CPU
from dovetail.model.pod import CPU_PROFILE, PREFERENCE_WEIGHTS
from dovetail.model.rights import GPU_AMOUNTS, GPU_COMPUTE, GPU_MEMORY, GPUS, Queue, gpu_amount
from dovetail.model.units import WHOLE_CARD
from dovetail.policies.quota.table import QUOTA_POLICIES

API_VERSION = "dovetail.dev/v1"
CONFIG_KIND = "Config"
LARGEST_FILE = 1 << 20
# Block, rack and host. Nodes without a label are in no domain of that level.
DEFAULT_TOPOLOGY = ("topology.kubernetes.io/block", "topology.kubernetes.io/rack", "kubernetes.io/hostname")
SIGNAL_KINDS = ("cpu", "cpuDeviation", "memory", "memoryDeviation", "gpu", "gpuMemory")

_LOOPBACK = re.compile(r"http://(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?(/|\Z)")


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
    # How long members of a gang below its minimum keep their nodes, for `dovetail scheduler`.
    release_after_seconds: Annotated[float, msgspec.Meta(ge=1)] | Literal["never"] = 600.0


class PreemptionConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Whether running pods are stopped for pods of a higher priority, and which."""

    enabled: bool = True
    other_schedulers: bool = False  # also pods that other schedulers placed
    minimum_run_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0  # a pod that started later is not stopped
    # Places are kept for the first group of the queue after this time; None: never.
    keep_places_after_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None


class QueueConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A queue, for clusters without a CRD for queues. Amounts are Kubernetes quantities (docs/queues.md)."""

    name: str
    parent: str = ""
    namespaces: list[str] = []
    arithmetic: str = "capacity"
    guarantee: dict[str, int | float | str] = {}
    ceiling: dict[str, int | float | str] = {}
    reserved: dict[str, int | float | str] = {}
    weight: Annotated[int, msgspec.Meta(ge=0)] | dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}
    lends: bool = True
    priority: int = 0
    preempt_after_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    reclaim_after_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class PrometheusConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A Prometheus server that knows the load of nodes and GPUs (docs/signals.md)."""

    url: str
    queries: dict[str, str] = {}  # kind of value -> PromQL; "" = do not ask
    node_labels: list[str] = []  # that name the node of a series; the defaults otherwise
    card_labels: list[str] = []
    index_labels: list[str] = []
    token_file: str | None = None  # relative to this file, as the next one
    ca_file: str | None = None


class SignalsConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where the measured load comes from that load-aware policies read."""

    metrics_api: bool = False  # metrics.k8s.io of the API server
    prometheus: PrometheusConfig | None = None
    every_seconds: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 15.0
    stale_after_seconds: Annotated[float, msgspec.Meta(ge=1, le=86400)] = 180.0
    window_seconds: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 300.0


class MetricsConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Metrics of HAMi's scheduler that /metrics serves, too."""

    hami: Literal["off", "on", "legacy"] = "off"
    hami_cards: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 10_000  # GPUs with series of their own


class TracingConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """OpenTelemetry traces of decisions."""

    endpoint: str | None = None  # an OTLP/HTTP address; None: OTEL_EXPORTER_OTLP_* of the environment, or no traces
    sample: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0  # the part of all pods that is traced


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
    signals: SignalsConfig = SignalsConfig()
    metrics: MetricsConfig = MetricsConfig()
    tracing: TracingConfig = TracingConfig()
    gpushare_memory_unit: Literal["MiB", "GiB"] = "GiB"  # of aliyun.com/gpu-mem: the plugin's --memory-unit
    gangs: GangConfig = GangConfig()
    preemption: PreemptionConfig = PreemptionConfig()
    queues: list[QueueConfig] = []  # queues() converts them
    # Node labels of the levels, the widest first, for gangs with rules about topology.
    topology: list[str] = msgspec.field(default_factory=lambda: list(DEFAULT_TOPOLOGY))
    queue_half_life_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0  # of past use in fair shares; 0: not counted


DEFAULT = Config(api_version=API_VERSION, kind=CONFIG_KIND)


def load(path: Path) -> Config:
    """Read and check the file. `device_config` is resolved against the file's folder."""
    config = _convert(path, parse(path))
    if config.api_version != API_VERSION:
        raise ConfigError(f"{path}: apiVersion is {config.api_version!r}, expected {API_VERSION!r}")
    if config.kind != CONFIG_KIND:
        raise ConfigError(f"{path}: kind is {config.kind!r}, expected {CONFIG_KIND!r}")
    queues(config, str(path))
    if config.device_config is not None:
        config = msgspec.structs.replace(config, device_config=str(path.parent / config.device_config))
    return _with_signal_files(config, path)


def _with_signal_files(config: Config, path: Path) -> Config:
    """The configuration with the files of `signals.prometheus` resolved against its folder, after checks."""
    given = config.signals.prometheus
    if given is None:
        return config
    where = f"{path}: signals.prometheus"
    _check_address(given, where)
    for name in given.queries:
        if name not in SIGNAL_KINDS:
            raise ConfigError(f"{where}.queries: {name!r} is not known; write one of {', '.join(SIGNAL_KINDS)}")
    files_ = {
        name: str(path.parent / value)
        for name in ("token_file", "ca_file")
        if (value := getattr(given, name)) is not None
    }
    given = msgspec.structs.replace(given, **files_)
    return msgspec.structs.replace(config, signals=msgspec.structs.replace(config.signals, prometheus=given))


def _check_address(given: PrometheusConfig, where: str) -> None:
    """Raises ConfigError. The address stands in logs, so it has no password. A token is not sent in clear text."""
    if "@" in given.url:
        raise ConfigError(f"{where}.url: has a user or password, which the log would show; write tokenFile instead")
    if not given.url.startswith(("http://", "https://")) or any(sign <= " " for sign in given.url):
        raise ConfigError(
            f"{where}.url: {given.url!r} is no address; write one such as http://prometheus.monitoring:9090"
        )
    if given.token_file is not None and given.url.startswith("http://") and not _LOOPBACK.match(given.url):
        raise ConfigError(f"{where}.tokenFile: would be sent in clear text to {given.url}; write an https:// address")


def parse(path: Path) -> object:
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


# ---- queues -----------------------------------------------------------------------------------------------------


def queues(config: Config, source: str) -> tuple[Queue, ...]:
    """The queues of the file by name. Raises ConfigError, which names the queue, the field and the fix."""
    made: dict[str, Queue] = {}
    for number, given in enumerate(config.queues):
        where = f"{source}: queues[{number}] ({given.name or 'without a name'})"
        queue = _queue(given, where)
        if given.name in made:
            raise ConfigError(f"{where}: name: there is another queue of this name; rename one")
        made[given.name] = queue
    owner: dict[str, str] = {}
    for name, queue in made.items():
        where = f"{source}: queue {name}"
        _check_place(queue, made, where)
        for namespace in queue.namespaces:
            if owner.setdefault(namespace, name) != name:
                raise ConfigError(f"{where}: namespaces: {namespace!r} is in queue {owner[namespace]} too; remove one")
    return tuple(made[name] for name in sorted(made))


def _queue(given: QueueConfig, where: str) -> Queue:
    if not given.name or any(mark in given.name for mark in "/()"):
        raise ConfigError(f"{where}: name: {given.name!r} is no name; write one without slashes and brackets")
    if given.arithmetic not in QUOTA_POLICIES:
        close = difflib.get_close_matches(given.arithmetic, QUOTA_POLICIES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(QUOTA_POLICIES)}"
        raise ConfigError(f"{where}: arithmetic: {given.arithmetic!r} is not known; {hint}")
    amounts = {
        field: {name: _amount(name, value, f"{where}: {field}.{name}") for name, value in getattr(given, field).items()}
        for field in ("guarantee", "ceiling", "reserved")
    }
    guarantee, ceiling, reserved = amounts.values()
    for resource, most in ceiling.items():
        if guarantee.get(resource, 0) > most:
            raise ConfigError(
                f"{where}: ceiling.{resource}: is less than the guarantee; raise it or lower the guarantee"
            )
    names = {*guarantee, *ceiling, *reserved}
    if isinstance(given.weight, int) and not names:
        raise ConfigError(
            f"{where}: weight: write resources, such as {{gpus: {given.weight}}}, as nothing else has any"
        )
    weight = dict.fromkeys(sorted(names), given.weight) if isinstance(given.weight, int) else given.weight
    for resource in weight:
        _check_resource(resource, f"{where}: weight.{resource}")
    return Queue(
        given.name,
        given.arithmetic,
        given.parent,
        tuple(given.namespaces),
        guarantee,
        ceiling,
        weight,
        given.lends,
        given.priority,
        preempt_after=given.preempt_after_seconds,
        reclaim_after=given.reclaim_after_seconds,
        reserved=reserved,
    )


def _amount(resource: str, value: float | str, where: str) -> int:
    """The amount in the unit of the resource: GPUs in cards, GPU memory in MiB, GPU compute in per cent of a card."""
    _check_resource(resource, where)
    text = value if isinstance(value, str) else repr(value)
    kind, _ = gpu_amount(resource)
    try:
        if kind == GPU_MEMORY:
            amount = quantity.parse(text)
            amount = -(-amount // 2**20) if text.endswith("i") else amount
        else:
            amount = quantity.parse(
                text, {GPUS: WHOLE_CARD, GPU_COMPUTE: WHOLE_CARD // 100, CPU: 1000}.get(kind or resource, 1)
            )
    except quantity.QuantityError as error:
        raise ConfigError(f"{where}: {error}") from error
    if amount < 0:
        raise ConfigError(f"{where}: {text} is negative; write 0 or more, or leave it out for no limit")
    return amount


def _check_resource(resource: str, where: str) -> None:
    kind, model = gpu_amount(resource)
    if kind and "/" in resource and not type_tokens(model):
        raise ConfigError(f"{where}: names no GPU model; write {kind}, or {kind}/A100 for one model")
    if not kind and "/gpu" in resource:
        raise ConfigError(f"{where}: write {', '.join(GPU_AMOUNTS)}, or one of them with a model, such as gpus/A100")


def _check_place(queue: Queue, made: dict[str, Queue], where: str) -> None:
    """Check the line to the root, and that a queue guarantees its children no more than it has."""
    seen, at = {queue.name}, queue
    while at.parent:
        if at.parent not in made:
            close = difflib.get_close_matches(at.parent, made, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "add it, or leave the parent out"
            raise ConfigError(f"{where}: parent: there is no queue {at.parent!r}; {hint}")
        if at.parent in seen:
            raise ConfigError(f"{where}: parent: the queue is above itself; name another parent, or none")
        seen.add(at.parent)
        at = made[at.parent]
    children = [one for one in made.values() if one.parent == queue.name]
    for resource, amount in queue.guarantee.items():
        below = sum(child.guarantee.get(resource, 0) for child in children)
        if below > amount:
            raise ConfigError(
                f"{where}: guarantee.{resource}: its queues have more guaranteed than it has; raise it or lower theirs"
            )
    if other := next((one for one in children if one.arithmetic != children[0].arithmetic), None):
        raise ConfigError(
            f"{where}: {children[0].name} divides by {children[0].arithmetic}, {other.name} by {other.arithmetic}; "
            "queues with one parent need one arithmetic"
        )
