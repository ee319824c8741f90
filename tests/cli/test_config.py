"""The configuration file is strict, and says which key of which file it does not like."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import config
from dovetail.cli.errors import Refused
from dovetail.cli.live import preemption_options
from dovetail.cli.measured_load import signal_options
from dovetail.cli.options import ClusterOptions
from dovetail.cli.settings import scheduler_profiles, settle
from dovetail.kube.live.rights import PreemptionOptions, live_rights
from dovetail.kube.live.signal_sources import NO_SIGNALS
from dovetail.kube.objects.problems import Problems
from dovetail.model.pod import Profile

HEAD = "apiVersion: dovetail.dev/v1\nkind: Config\n"


def load(folder: Path, text: str) -> config.Config:
    path = folder / "dovetail.yaml"
    path.write_text(text, encoding="utf-8")
    return config.load(path)


def test_everything_has_a_default(tmp_path: Path) -> None:
    assert load(tmp_path, HEAD) == config.DEFAULT


def test_all_keys(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        HEAD
        + "nodePolicy: fit-plus\ngpuPolicy: spread\n"
        + "policyArguments:\n  fit-plus: {resources: {cpu: {type: LeastAllocated, weight: 2}}}\n  random: {seed: 7}\n"
        + "deviceConfig: hami/device-config.yaml\n",
    )
    assert (loaded.node_policy, loaded.gpu_policy) == ("fit-plus", "spread")
    assert loaded.policy_arguments["fit-plus"] == {"resources": {"cpu": {"type": "LeastAllocated", "weight": 2}}}
    assert loaded.policy_arguments["random"] == {"seed": 7}
    assert loaded.device_config == str(tmp_path / "hami" / "device-config.yaml")


def test_an_absolute_device_config_stays(tmp_path: Path) -> None:
    assert load(tmp_path, HEAD + "deviceConfig: /etc/hami.yaml\n").device_config == "/etc/hami.yaml"


def test_the_example_loads(examples: Path) -> None:
    assert config.load(examples / "koordinator" / "config" / "dovetail.yaml").node_policy == "fit-plus"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + "nodePolcy: spread\n", "unknown key 'nodePolcy'; did you mean 'nodePolicy'?"),
        (HEAD + "colour: red\n", "known keys: apiVersion, kind, nodePolicy"),
        (HEAD + "nodePolicy: 3\n", "nodePolicy"),
        (HEAD + "policyArguments: {random: 3}\n", "policyArguments"),
        ("kind: Config\n", "apiVersion"),
        ("apiVersion: v1\nkind: Config\n", "expected 'dovetail.dev/v1'"),
        ("apiVersion: dovetail.dev/v1\nkind: Pod\n", "expected 'Config'"),
        ("- a\n- b\n", "expected a mapping"),
        ("", "expected a mapping"),
        ("a: [1\n", "not YAML in line"),
        ("a: !!python/object:os.system x\n", "not YAML"),
        ("\x00", "not YAML"),
        ("[" * 5000, "not YAML"),
        (HEAD + "x: " + "y" * (1 << 20), "larger than"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(config.ConfigError, match=r"dovetail\.yaml") as caught:
        load(tmp_path, text)
    assert says in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigError, match=r"nowhere\.yaml: cannot read it: No such file"):
        config.load(tmp_path / "nowhere.yaml")


def test_pods_without_devices_are_configured_for_all_and_by_scheduler_name(tmp_path: Path) -> None:
    path = tmp_path / "dovetail.yaml"
    text = HEAD + (
        "withoutDevices: {nodePolicy: most-allocated, defaultSpread: false}\n"
        "schedulers:\n  plain: {defaultSpread: true}\n  own: {withoutDevices: {policyWeight: 2}}\n"
    )
    path.write_text(text, encoding="utf-8")
    loaded, settings = settle(ClusterOptions(config=str(path)), Problems())
    found = scheduler_profiles(loaded, settings, (), str(path))
    everywhere = Profile("most-allocated", policy_weight=1)
    assert (settings.cpu_profile, found["plain"].cpu_profile) == (everywhere, everywhere)
    assert found["own"].cpu_profile == Profile("off-devices", policy_weight=2, default_spread=True)
    assert (found["plain"].profile.default_spread, found["own"].profile.default_spread) == (True, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("withoutDevices: {nodePolicy: nearest}\n", "withoutDevices.nodePolicy: 'nearest' is no node policy"),
        ("withoutDevices: {policyWeight: -1}\n", "withoutDevices: weights are whole numbers from 0 to 1000"),
    ],
)
def test_a_wrong_profile_without_devices_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "dovetail.yaml"
    path.write_text(HEAD + text, encoding="utf-8")
    with pytest.raises(Refused) as caught:
        settle(ClusterOptions(config=str(path)), Problems())
    assert says in str(caught.value)


SIGNALS = """signals:
  metricsApi: true
  prometheus:
    url: https://prometheus:9090
    caFile: certificates/ca.pem
    tokenFile: /var/run/token
    queries: {gpu: HostCoreUtilization, gpuMemory: ""}
    nodeLabels: [node]
  staleAfterSeconds: 60
"""


def test_sources_of_measured_load(tmp_path: Path) -> None:
    given = signal_options(load(tmp_path, HEAD + SIGNALS).signals)
    assert (given.metrics_api, given.every_seconds, given.stale_seconds) == (True, 15, 60)
    assert given.prometheus is not None
    assert given.prometheus.ca_file == tmp_path / "certificates" / "ca.pem"
    assert given.prometheus.token_file == Path("/var/run/token")
    queries, labels = given.prometheus.queries, given.prometheus.labels
    assert (queries["gpu"], queries["gpuMemory"]) == ("HostCoreUtilization", "")
    assert "node_cpu_seconds_total" in queries["cpu"]  # the default
    assert (labels.node, labels.card[0]) == (("node",), "UUID")
    assert signal_options(config.DEFAULT.signals) == NO_SIGNALS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "signals: {prometheus: {url: 'prometheus:9090'}}\n",
            "signals.prometheus.url: 'prometheus:9090' is no address",
        ),
        ("signals: {prometheus: {url: 'https://me:secret@p:9090'}}\n", "url: has a user or password"),
        ("signals: {prometheus: {url: 'https://me:secret@p?x'}}\n", "url: has a user or password"),
        ("signals: {prometheus: {url: 'me:secret@p'}}\n", "url: has a user or password"),
        ("signals: {prometheus: {url: 'http://p', queries: {disk: x}}}\n", "write one of cpu, cpuDeviation"),
        ("signals: {everySeconds: 0}\n", "everySeconds"),
        ("signals: {metricsAPI: true}\n", "metricsAPI"),
        ("gpushareMemoryUnit: GB\n", "gpushareMemoryUnit"),
    ],
)
def test_wrong_sources_of_measured_load_are_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(config.ConfigError) as caught:
        load(tmp_path, HEAD + text)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("https://p:9090", True),
        ("http://localhost:9090", True),
        ("http://127.0.0.1:9090/prometheus", True),
        ("http://[::1]", True),
        ("http://p:9090", False),
        ("http://localhost.example.com", False),
        ("http://127.0.0.1.example.com", False),
    ],
)
def test_a_token_is_not_sent_in_clear_text(tmp_path: Path, url: str, right: bool) -> None:
    text = f"{HEAD}signals: {{prometheus: {{url: '{url}', tokenFile: token}}}}\n"
    if right:
        assert load(tmp_path, text).signals.prometheus is not None
        return
    with pytest.raises(config.ConfigError, match="tokenFile: would be sent in clear text"):
        load(tmp_path, text)


def test_the_unit_of_gpushare(tmp_path: Path) -> None:
    load(tmp_path, HEAD + "gpushareMemoryUnit: MiB\n")
    for path, factor in ((str(tmp_path / "dovetail.yaml"), 1), (None, 1024)):
        _, settings = settle(ClusterOptions(config=path), Problems())
        assert settings.vendors.by_word["gpushare"].memory_factor == factor


def test_preemption(tmp_path: Path) -> None:
    loaded = load(tmp_path, HEAD + "preemption: {enabled: false, otherSchedulers: true, minimumRunSeconds: 60}\n")
    assert loaded.preemption == config.PreemptionConfig(False, True, 60.0)
    assert config.DEFAULT.preemption == config.PreemptionConfig(True, False, 0.0)
    with pytest.raises(config.ConfigError, match=r"minimumRunSeconds|>= 0"):
        load(tmp_path, HEAD + "preemption: {minimumRunSeconds: -1}\n")
    with pytest.raises(config.ConfigError, match="otherScheduler"):
        load(tmp_path, HEAD + "preemption: {otherScheduler: true}\n")


def test_the_option_wins_over_the_configuration() -> None:
    """`--no-preemption` switches off; nothing on the command line switches on what the file switches off."""
    for enabled, wanted in ((True, True), (True, False), (False, True)):
        options = preemption_options(config.PreemptionConfig(enabled, True, 5.0), wanted)
        assert options.enabled is (enabled and wanted)
        assert (options.other_schedulers, options.minimum_run_seconds) == (True, 5.0)
    rights = live_rights(PreemptionOptions(other_schedulers=False, minimum_run_seconds=5.0), ("dovetail",))
    assert (rights.schedulers, rights.minimum_run) == (frozenset({"dovetail"}), 5.0)
    assert live_rights(PreemptionOptions(other_schedulers=True), ("dovetail",)).schedulers is None
    assert live_rights(PreemptionOptions(enabled=False), ("dovetail",)).yielding is None
