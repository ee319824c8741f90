"""`dovetail get`: lists GPUs, nodes, pods, the queue, gangs and quotas of a cluster. It only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dovetail.cli.ending import ends_soon
from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions, board_options, color_option
from dovetail.cli.output.progress import progress
from dovetail.cli.output.terminal import echo, echo_styled, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.cli.board import Board
    from dovetail.cli.output.list_view import Item, ListView

LIST_NAMES = {  # what users type -> the view
    **dict.fromkeys(("gpus", "gpu", "cards"), "gpus"),
    **dict.fromkeys(("nodes", "node", "no"), "nodes"),
    **dict.fromkeys(("pods", "pod", "po"), "pods"),
    **dict.fromkeys(("queue", "waiting"), "queue"),
    **dict.fromkeys(("gangs", "gang", "podgroups", "pg"), "gangs"),
    **dict.fromkeys(("quotas", "quota", "queues"), "quotas"),
}
LIST_FORMS = ("table", "wide", "json", "yaml", "name")


class _Kind(click.ParamType[str]):
    """One of the things that are listed; completes the main names only."""

    name = "kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = LIST_NAMES.get(str(value).lower())
        if found is None:
            self.fail(
                f"there is no list of {value!r}; choose {', '.join(dict.fromkeys(LIST_NAMES.values()))}", param, ctx
            )
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in dict.fromkeys(LIST_NAMES.values()) if name.startswith(incomplete)]


@click.command(short_help="List GPUs, nodes, pods, the queue, gangs or quotas of a cluster.")
@click.argument("kind", type=_Kind(), metavar="gpus|nodes|pods|queue|gangs|quotas")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@board_options
@click.option("-l", "--selector", default="", metavar="LABELS", help="Labels of nodes or pods: app=web,tier!=db.")
@click.option("--all", "everything", is_flag=True, help="Pods without GPUs, too.")
@click.option("-w", "--watch", is_flag=True, help="After the list, print each item that changes, until Ctrl-C.")
@click.option("--no-headers", is_flag=True, help="Print no titles of columns.")
@click.option(
    "-o", "--output", type=click.Choice(LIST_FORMS), default="table", show_default=True, help="wide shows more columns."
)
@color_option
@click.pass_context
def get(
    context: click.Context,
    /,
    kind: str,
    names: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    everything: bool,
    watch: bool,
    no_headers: bool,
    output: str,
    **source: Any,
) -> None:
    """List the GPUs of a cluster, the pods that use them, and the pods that wait.

    Reads the cluster of your kubeconfig, or with -f a snapshot or manifests. Changes nothing.

    \b
      gpus     each GPU: memory and compute in use, pods, state
      nodes    whole GPUs free, fragmentation, the largest request that fits
      pods     node, GPUs, memory, compute, age, and why a pod waits
      queue    waiting pods in the order in which they are served, with the reason
      gangs    members that run, the minimum, topology
      quotas   limits of namespaces, and queues: used, guarantee, ceiling, borrowed

    \b
    Examples:
      dovetail get gpus
      dovetail get gpus -l gpu-type=a100 -o wide
      dovetail get queue -A
      dovetail get pods -n ml --watch
      dovetail get nodes -f cluster.json.gz -o json | jq '.items[] | select(.gpus.wholeFree > 0) | .name'
      kubectl dovetail get gangs -A

    Exit codes: 0 done, 2 the input is wrong or the cluster cannot be read.
    """
    asked = ClusterOptions(**source, live=not source["filenames"])
    from dovetail.cli.listing import ListChoice, chosen

    if not watch:
        context.with_resource(ends_soon())
    with progress("Reading the cluster"):
        from dovetail.cli import board as boards
        from dovetail.cli.output import listing

        view = listing.VIEWS[kind]
        where = _namespace(asked, view, namespace, all_namespaces)
        choice = ListChoice(where, selector, names, kind == "pods" and not everything and not names)
        if not watch:
            board = boards.read(asked, explained=kind in ("pods", "queue"))
            items = chosen(view, board, choice)
    if watch:
        from dovetail.cli import watching

        if asked.filenames:
            raise Refused("--watch follows a live cluster; leave out -f")
        watching.watch(asked, kind, choice, output, not no_headers)
        return
    _print(board, view, items, output, not no_headers, where)


def _namespace(asked: ClusterOptions, view: ListView, namespace: str | None, everywhere: bool) -> str:
    """The namespace to list; "" = all. As kubectl: that of the context, unless -n or -A says otherwise."""
    if everywhere and namespace:
        raise Refused("-A lists all namespaces and -n one; leave one out")
    if everywhere or not view.namespaced or (asked.filenames and namespace is None):
        return ""
    if namespace is not None:
        return namespace
    from dovetail.cli.sources import connection_of

    return connection_of(asked.kubeconfig, asked.context).namespace


def _print(board: Board, view: ListView, items: Sequence[Item], output: str, header: bool, where: str) -> None:
    from dovetail.cli.output import encoding, listing

    if output in encoding.FORMATS:
        echo(encoding.encode(listing.document(view, items), output))
    elif output == "name":
        echo("\n".join(view.name(item) for item in items))
    elif items:
        echo_styled("\n".join(listing.lines(view, items, output == "wide", header)))
    else:
        say(f"nothing found{f' in namespace {where}; -A lists all' if where else ''}")
