"""Which scheduler name `dovetail webhook` gives to pods: that of the command line, else the configuration's first."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.cli.options import ClusterOptions
from dovetail.cli.settings import settle
from dovetail.cli.webhook import AloneOptions, pod_webhook, profiles_alone
from dovetail.cli.webhook_options import WebhookAsked
from dovetail.kube.objects.problems import Problems

CONFIG = """\
apiVersion: dovetail.dev/v1
kind: Config
schedulers:
  dovetail: {nodePolicy: spread}
  hami-scheduler: {nodePolicy: binpack}
"""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), ["dovetail", "hami-scheduler"]),
        (("hami-scheduler",), ["hami-scheduler", "dovetail"]),
        (("other", "hami-scheduler"), ["other", "hami-scheduler", "dovetail"]),
    ],
)
def test_names_of_the_command_line_go_before_those_of_the_configuration(
    names: tuple[str, ...], expected: list[str], tmp_path: Path
) -> None:
    """With --config, pods got the configuration's first name whatever --scheduler-name said."""
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    asked = AloneOptions(ClusterOptions(config=str(path)), WebhookAsked(), names)
    profiles = profiles_alone(*settle(asked.asked, Problems()), asked)
    assert list(profiles) == expected
    assert profiles["dovetail"].profile.node.startswith("spread")
    assert profiles["hami-scheduler"].profile.node.startswith("binpack")
    assert pod_webhook(asked.webhook, profiles).options.scheduler_name == expected[0]
