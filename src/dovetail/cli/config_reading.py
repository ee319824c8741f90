"""What `dovetail config check` and `config show` say: problems of files, and values with their sources."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dovetail import config as configuration
from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions
from dovetail.cli.output import table
from dovetail.cli.settings import scheduler_profiles, settle, with_vendors
from dovetail.kube.conversion.gangs import WAIT
from dovetail.kube.objects.problems import InputError, Problems
from dovetail.model.pod import DEFAULT_PROFILE

FROM_DEFAULT, FROM_FILE, COMMAND_LINE = "default", "file", "command line"
NESTED_FIELDS = (  # fields whose values have fields of their own
    *("withoutDevices", "withoutDevices.preferenceWeights", "signals", "signals.prometheus", "metrics", "tracing"),
    *("gangs", "preemption"),
)


class ConfigValue(NamedTuple):
    """One value of the configuration in effect."""

    field: str  # withoutDevices.nodePolicy
    value: Any
    source: str  # default, file or command line

    @property
    def document(self) -> dict[str, Any]:
        return {"field": self.field, "value": self.value, "source": self.source}


def checked(path: Path) -> dict[str, Any]:
    """The problems of a file, as a document."""
    problems, errors = Problems(), []
    try:
        _read(ClusterOptions(config=str(path)), problems)
    except Refused as error:
        errors = list(error.lines)
    except InputError as error:
        errors = [str(problem) for problem in error.problems]
    warnings = [str(problem) for problem in problems.found() if problem.severity == "warning"]
    return {"file": str(path), "ok": not errors, "errors": errors, "warnings": warnings}


def _read(asked: ClusterOptions, problems: Problems) -> configuration.Config:
    """The configuration, after all checks that `dovetail scheduler` makes. Raises Refused or InputError."""
    config, settings = settle(asked, problems)
    settings = with_vendors(settings, asked.device_config or config.device_config, problems)
    scheduler_profiles(config, settings, (), str(asked.config))
    return config


def effective(asked: ClusterOptions) -> list[ConfigValue]:
    """All values in the order of the file's fields. Raises Refused."""
    try:
        config = _read(asked, Problems())
    except InputError as error:
        raise Refused(*(str(problem) for problem in error.problems)) from error
    written = configuration.parse(Path(asked.config)) if asked.config else {}
    given = {
        "nodePolicy": asked.node_policy,
        "gpuPolicy": asked.gpu_policy,
        "deviceConfig": asked.device_config,
        "allowedPolicies": list(asked.allowed_policies) or None,
    }
    usual = {
        "gangs.unknownGroup": WAIT,
        "nodePolicy": DEFAULT_PROFILE.node,
        "gpuPolicy": ",".join(DEFAULT_PROFILE.device),
    }
    return list(_values(msgspec.to_builtins(config), written, {k: v for k, v in given.items() if v}, usual))


def _values(
    config: Mapping[str, Any], written: object, given: Mapping[str, Any], usual: Mapping[str, Any], inside: str = ""
) -> Iterator[ConfigValue]:
    for name, value in config.items():
        field = f"{inside}{name}"
        there = isinstance(written, Mapping) and name in written
        if field in NESTED_FIELDS and isinstance(value, Mapping):
            below = written[name] if isinstance(written, Mapping) and there else {}
            yield from _values(value, below, given, usual, f"{field}.")
        elif field in given:
            yield ConfigValue(field, given[field], COMMAND_LINE)
        elif there:
            yield ConfigValue(field, value, FROM_FILE)
        else:
            yield ConfigValue(field, usual.get(field) if value is None else value, FROM_DEFAULT)


def rows_of(values: list[ConfigValue]) -> list[str]:
    """The lines of a table."""
    rows = [(one.field, one.value if isinstance(one.value, str) else _json(one.value), one.source) for one in values]
    return table.render(("FIELD", "VALUE", "FROM"), rows).splitlines()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
