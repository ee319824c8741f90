"""Options that several commands share. Imports nothing heavy: --help must be fast."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import click
from click.shell_completion import CompletionItem

Function = TypeVar("Function", bound=Callable[..., Any])

OUTPUTS = ("table", "wide", "json", "yaml")
ENGINES = ("auto", "interpreted", "compiled")
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")


class Option(Protocol):
    """A decorator that adds one or more options to a command."""

    def __call__(self, function: Function, /) -> Function: ...


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options about the cluster, not yet read or checked."""

    filenames: tuple[str, ...] = ()
    namespace: str | None = None
    node_policy: str | None = None
    gpu_policy: str | None = None
    config: str | None = None
    device_config: str | None = None
    engine: str = "auto"
    unknown_pod_group: str | None = None
    allowed_policies: tuple[str, ...] = ()
    strict: bool = False
    preemption: bool = True
    live: bool = False  # the cluster of a kubeconfig, beside the files
    kubeconfig: str | None = None
    context: str | None = None
    scheduler_names: tuple[str, ...] = ()


def _set_color(context: click.Context, _parameter: click.Parameter, value: str) -> None:
    """Set `context.color`. By default, click strips colours if the output is not a terminal; here the user decides."""
    if value == "auto":
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        context.color = False if plain else None
    else:
        context.color = value == "always"


def complete_policy(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

    table = NODE_POLICIES if parameter.name == "node_policy" else DEVICE_POLICIES
    return [CompletionItem(name, help=row.sentence) for name, row in table.items() if name.startswith(incomplete)]


def together(*options: Option) -> Option:
    """One decorator that adds `options`; --help lists them in this order."""

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def scheduler_names_option(text: str) -> Option:
    """The scheduler names of a live command; other commands choose pods by `--scheduler-name` of `live_options`."""
    return click.option("--scheduler-name", "names", metavar="NAME", multiple=True, help=text)


def node_policy_option(text: str, *aliases: str) -> Option:
    return click.option(
        *aliases, "--node-policy", "node_policy", metavar="POLICY", shell_complete=complete_policy, help=text
    )


def gpu_policy_option(text: str, *aliases: str) -> Option:
    return click.option(
        *aliases, "--gpu-policy", "gpu_policy", metavar="POLICY[,POLICY]", shell_complete=complete_policy, help=text
    )


def config_option(text: str) -> Option:
    """`text` says what the command reads in the configuration."""
    return click.option(
        "--config", envvar="DOVETAIL_CONFIG", show_envvar=True, metavar="FILE", type=click.Path(), help=text
    )


def device_config_option(*aliases: str, text: str = "HAMi's device-config.yaml.") -> Option:
    return click.option(*aliases, "--device-config", "device_config", metavar="FILE", type=click.Path(), help=text)


def log_options(levels: str = "The least important messages that are printed.") -> Option:
    """The format and the level of the log; `levels` is the help of the level."""
    return together(
        click.option(
            "--log-format", type=click.Choice(LOG_FORMATS), default="text", show_default=True, help="On stderr."
        ),
        click.option("--log-level", type=click.Choice(LOG_LEVELS), default="info", show_default=True, help=levels),
    )


def filename_option(text: str) -> Option:
    return click.option(
        "-f",
        "--filename",
        "filenames",
        multiple=True,
        metavar="FILE",
        type=click.Path(exists=False, allow_dash=True),
        help=text,
    )


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default="table",
    show_default=True,
    help="How to print: table and wide are for people, json and yaml for programs.",
)
color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    expose_value=False,
    is_eager=True,
    callback=_set_color,
    help="Colours; auto means on a terminal only. NO_COLOR is honoured.",
)
engine_option = click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="auto",
    show_default=True,
    help="Run policies interpreted or compiled; the decisions are the same.",
)

unknown_pod_group_option = click.option(
    "--unknown-pod-group",
    type=click.Choice(["wait", "alone"]),
    help="What pods do whose PodGroup is not known: wait for it (default), or be placed alone.",
)

seal_key_option = click.option(
    "--seal-key-file",
    envvar="DOVETAIL_SEAL_KEY_FILE",
    show_envvar=True,
    metavar="FILE",
    type=click.Path(),
    help="Keys that seal which GPUs a pod was given, one per line: the first seals, all verify (docs/records.md).",
)

_kubeconfig_option = click.option(
    "--kubeconfig", metavar="FILE", type=click.Path(), help="Default: $KUBECONFIG, in-cluster, ~/.kube/config."
)
_context_option = click.option(
    "--context", metavar="NAME", help="A context of the kubeconfig other than the current one."
)

_live_option = click.option(
    "--live", is_flag=True, help="Read the cluster of your kubeconfig; manifests of -f are added to it."
)
_scheduler_name_option = click.option(
    "--scheduler-name",
    "scheduler_names",
    metavar="NAME",
    multiple=True,
    help="Of a live cluster or a snapshot, pods that wait for this spec.schedulerName are placed (default: the names of"
    " --config, of the running Dovetail, or dovetail). Repeat it.",
)

cluster_options = together(  # of a command that reads a cluster and prints a result
    filename_option(
        "Manifests, YAML or JSON, or a snapshot: a file, a folder, or - for stdin. Repeat it; the order does not"
        " matter."
    ),
    click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="Namespace of objects that name none (default: default), and where `explain` looks for the pod.",
    ),
    node_policy_option("Node policy of pods that name none (default: binpack). See `dovetail policies`."),
    gpu_policy_option("GPU policy, or chain of them, of pods that name none (default: spread)."),
    config_option("Configuration: default policies and their arguments."),
    device_config_option(text="HAMi's device-config.yaml: resource names and defaults."),
    click.option(
        "--strict",
        is_flag=True,
        help="Mistakes such as unknown fields and misspelt annotations are errors: exit code 2.",
    ),
    click.option(
        "--no-preemption",
        "preemption",
        flag_value=False,
        default=True,
        help="Stop no running pods for pods of a higher priority.",
    ),
    unknown_pod_group_option,
    engine_option,
    output_option,
    color_option,
)

journal_options = together(  # of the flight recorder
    click.option(
        "--journal",
        envvar="DOVETAIL_JOURNAL",
        show_envvar=True,
        metavar="DIR",
        type=click.Path(),
        help="Write all inputs of decisions to files in this folder, so that they can be repeated (dovetail journal).",
    ),
    click.option(
        "--journal-size",
        metavar="MIB",
        type=click.IntRange(16, 1_048_576),
        default=512,
        show_default=True,
        help="Room for the journal on disk; the oldest files go first.",
    ),
    click.option(
        "--journal-days",
        metavar="DAYS",
        type=click.FloatRange(0.001, 3650),
        default=14,
        show_default=True,
        help="Age at which files of the journal go.",
    ),
)

connection_options = together(_kubeconfig_option, _context_option)  # select a live cluster

live_options = together(  # of a command that reads files, a live cluster, or both
    _live_option, connection_options, _scheduler_name_option
)

board_options = together(  # of a command that shows the state of a cluster
    filename_option("Read a snapshot or manifests instead of a cluster: a file, a folder, or - for stdin. Repeat it."),
    connection_options,
    click.option("-n", "--namespace", metavar="NAME", help="A namespace other than that of your context."),
    click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces."),
    _scheduler_name_option,
    config_option("The scheduler's configuration: its scheduler names, queues and topology."),
    device_config_option(),
)
