"""The configuration file is strict, and says which key of which file it does not like."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import config
from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions
from dovetail.cli.settings import scheduler_profiles, settle
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
