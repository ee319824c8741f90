"""HAMi's flags, by their names: what each does here, or why it is refused (HAMi v2.10: cmd/scheduler/main.go).

A flag is never accepted and ignored. docs/extender.md has the same table; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from dovetail.cli.errors import Refused

Function = TypeVar("Function", bound=Callable[..., Any])

HONOURED_FLAGS = (  # flags of HAMi that are options of `dovetail extender`
    "--http_bind",
    "--cert_file",
    "--key_file",
    "--scheduler-name",
    "--node-scheduler-policy",
    "--gpu-scheduler-policy",
    "--metrics-bind-address",
    "--node-label-selector",
    "--kube-timeout",
    "--node-lock-timeout",
    "--node-lock-retry-timeout",
    "--legacy-metrics",
    "--device-config-file",
    "--debug",
    "-v",
)


class RefusedFlag(NamedTuple):
    """A flag that Dovetail does not take. `harmless`: values that ask for what is the case anyway."""

    name: str
    why: str
    harmless: frozenset[str] = frozenset()


OFF, ON = frozenset({"false"}), frozenset({"true"})
_FILES = "logs go to stderr only; let the container runtime keep them"
_LEASE = "it names kube-scheduler's Lease in HAMi; Dovetail holds a Lease of its own: write {} instead"
REFUSED_FLAGS = (
    RefusedFlag(
        "--kube-qps",
        "there is no limit by time; --binds-at-once limits the requests under way, and the API"
        " server's priority and fairness does the rest",
    ),
    RefusedFlag("--kube-burst", "there is no limit by time; --binds-at-once limits the requests under way"),
    RefusedFlag("--profiling", "there is no pprof: Dovetail is not written in Go", OFF),
    RefusedFlag("--force-overwrite-default-scheduler", "it is about admission: give it to the webhook"),
    RefusedFlag("--leader-elect", "Dovetail always holds a Lease: two processes must never give out one card", ON),
    RefusedFlag("--leader-elect-resource-name", _LEASE.format("--lease-name")),
    RefusedFlag("--leader-elect-resource-namespace", _LEASE.format("--lease-namespace")),
    RefusedFlag("--enable-ascend", "nodes' registers decide: an Ascend device that is registered is placed", ON),
    RefusedFlag("--enable-iluvatar", "nodes' registers decide: an Iluvatar device that is registered is placed", ON),
    RefusedFlag("--logtostderr", _FILES, ON),
    RefusedFlag("--alsologtostderr", _FILES, frozenset({"true", "false"})),
    RefusedFlag("--log_dir", _FILES),
    RefusedFlag("--log_file", _FILES),
    RefusedFlag("--log_file_max_size", _FILES),
    RefusedFlag("--log_backtrace_at", "there are no Go stack traces; use -v 4"),
    RefusedFlag("--stderrthreshold", "all messages go to stderr; --log-level sets the least important"),
    RefusedFlag("--vmodule", "messages have one level for the whole process: --log-level"),
    RefusedFlag("--add_dir_header", "lines of the log have no Go headers", OFF),
    RefusedFlag("--skip_headers", "lines of the log have no Go headers", ON),
    RefusedFlag("--skip_log_headers", "logs go to stderr only, without headers of files", ON),
    RefusedFlag("--one_output", _FILES, ON),
)


def refuse_the_rest(function: Function) -> Function:
    """Add the refused flags as hidden options."""
    for flag in reversed(REFUSED_FLAGS):
        function = click.option(
            flag.name,
            hidden=True,
            expose_value=False,
            is_flag=False,
            flag_value="true",
            callback=_refuse(flag),
            help=f"Refused: {flag.why}.",
        )(function)
    return function


def _refuse(flag: RefusedFlag) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def check(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is None or value.lower() in flag.harmless:
            return
        means = f" ({flag.name}={'|'.join(sorted(flag.harmless))} is accepted)" if flag.harmless else ""
        raise Refused(f"{flag.name}: {flag.why}{means}")

    return check


class GoDuration(click.ParamType[float]):
    """`28s`, `5m`, `1m30s`, or `0`."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from dovetail.kube.conversion.times import duration_of  # not needed for --help

        if isinstance(value, int | float):
            return float(value)
        seconds = 0.0 if value == "0" else duration_of(str(value))
        if seconds is None or seconds < 0:
            self.fail(f"{value!r} is no duration, such as 28s or 5m", param, ctx)
        return seconds


def verbosity(context: click.Context, parameter: click.Parameter, value: str | None) -> int:
    """klog's `-v 4`, also written `-v=4`."""
    text = (value or "0").lstrip("=")
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is no number", context, parameter)
    return int(text)


def labels(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """`pool=a,zone=b` as single labels."""
    found = tuple(one for text in value for one in text.split(",") if one)
    for one in found:
        if not one.partition("=")[0] or not one.partition("=")[2]:
            raise click.BadParameter(f"{one!r} is not KEY=VALUE, such as pool=research", context, parameter)
    return found


def address(name: str, text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:8080`; `:9395` is every address, as in Go."""
    host, sign, port = text.rpartition(":")
    if not sign or not port.isdecimal() or int(port) > 65_535:
        raise Refused(f"{name}: {text!r} is not HOST:PORT, such as 127.0.0.1:8080")
    return host.strip("[]"), int(port)
