"""`dovetail journal`: repeats recorded decisions, explains them, and asks what would have been otherwise."""

from __future__ import annotations

import click

from dovetail.cli.errors import BAD_INPUT, Refused
from dovetail.cli.options import color_option, complete_policy, engine_option
from dovetail.cli.output.progress import progress
from dovetail.cli.output.terminal import echo, echo_styled, say

DIFFERENT = 1
_place = click.argument("place", metavar="DIR|FILE", type=click.Path())
_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Format of the answer.",
)


@click.group(short_help="Repeat and explain decisions of the past.")
def journal() -> None:
    """Repeat, explain and compare what a scheduler decided, from the files of `dovetail scheduler --journal DIR`.

    \b
    Examples:
      dovetail journal stat /var/lib/dovetail/journal
      dovetail journal replay /var/lib/dovetail/journal
      dovetail journal diff /var/lib/dovetail/journal --node-policy fgd
      dovetail journal explain ml/train-0 /var/lib/dovetail/journal --at 2026-11-10T14:00
    """


@journal.command(short_help="Execute all decisions again; they must be the same.")
@_place
@click.option("--from-checkpoints", is_flag=True, help="Take the state of each checkpoint, also where it is known.")
@engine_option
@_output
@color_option
@click.pass_context
def replay(context: click.Context, place: str, from_checkpoints: bool, engine: str, output: str) -> None:
    """Execute every recorded decision again, and compare each with what was recorded, bit for bit.

    Exit codes: 0 all are the same, 1 one differs, 2 a file cannot be read.
    """
    from dovetail.cli.journals import JournalReader
    from dovetail.cli.output import encoding, journals
    from dovetail.whatif.rerun import Rerun, calls_of

    read, rerun = JournalReader.of(place), Rerun(engine, restores=from_checkpoints, cache=True)
    with progress(lambda: f"Repeating {rerun.counts.calls:,} calls"):
        for _ in calls_of(read.parts(), rerun):
            pass
    read.tell()
    if output in encoding.FORMATS:
        echo(encoding.encode(journals.replay_document(rerun.counts, read), output))
    else:
        echo("\n".join(journals.replay_lines(rerun.counts)))
    context.exit(DIFFERENT if rerun.counts.different else BAD_INPUT if read.complaints() else 0)


@journal.command(short_help="Files, sizes, kinds of entries, gaps.")
@_place
@_output
@color_option
@click.pass_context
def stat(context: click.Context, place: str, output: str) -> None:
    """What a journal contains: files, bytes, entries by kind, bytes for each pod, gaps."""
    from dovetail.cli.journals import JournalReader
    from dovetail.cli.output import encoding, journals

    read = JournalReader.of(place)
    with progress("Reading"):
        found = journals.statistics(read)
    read.tell()
    if output in encoding.FORMATS:
        echo(encoding.encode(found, output))
    else:
        echo_styled(journals.statistics_table(found))
    context.exit(BAD_INPUT if read.complaints() else 0)


@journal.command(short_help="The entries, one per line.")
@_place
@click.option("--pod", metavar="NAMESPACE/NAME", help="Only entries about this pod.")
@click.option("--since", metavar="TIME", help="From this moment on: 2026-11-10T14:00, or 2h (ago).")
@click.option("--until", metavar="TIME", help="Up to this moment.")
@_output
@color_option
@click.pass_context
def show(
    context: click.Context, place: str, pod: str | None, since: str | None, until: str | None, output: str
) -> None:
    """Print the entries in order: number, time, what happened, and what was decided."""
    from dovetail.cli.journals import JournalReader, parse_time
    from dovetail.cli.output import encoding, journals

    begin = parse_time(since, "--since") if since else 0.0
    end = parse_time(until, "--until") if until else float("inf")
    read = JournalReader.of(place)
    for line in journals.entries(read, pod, begin, end):
        echo(encoding.encode_line(line) if output in encoding.FORMATS else journals.entry_line(line))
    read.tell()
    context.exit(BAD_INPUT if read.complaints() else 0)


@journal.command(short_help="Why a pod was placed there, or waited, at that time.")
@click.argument("pod", metavar="[NAMESPACE/]POD")
@_place
@click.option("--at", "moment", metavar="TIME", help="The last decision before: 2026-11-10T14:00, or 2h (ago).")
@_output
@color_option
@click.pass_context
def explain(context: click.Context, pod: str, place: str, moment: str | None, output: str) -> None:
    """Say why a pod was placed where it was, or why it waited: with the scores that the other nodes had then.

    All decisions up to that one are executed again, so the answer is that of the engine in that situation.
    """
    from dovetail.cli import explaining_past
    from dovetail.cli.journals import JournalReader, parse_time
    from dovetail.cli.output import encoding
    from dovetail.cli.output import explanation as explain_text

    until = parse_time(moment, "--at") if moment else float("inf")
    read = JournalReader.of(place)
    with progress("Repeating what was decided before"):
        past = explaining_past.answer(read, pod, until)
    read.tell()
    if past is None:
        raise Refused(f"{place}: no decision about pod {pod} is recorded{' before that time' if moment else ''}")
    if output in encoding.FORMATS:
        echo(encoding.encode(explaining_past.document(past), output))
    else:
        say(explaining_past.heading(past))
        echo_styled("\n".join(explain_text.lines(past.answer, False)))
    context.exit(0)


@journal.command(short_help="What other policies would have done.")
@_place
@click.option("--policy", metavar="NODE[/GPU]", help="The same as --node-policy and --gpu-policy.")
@click.option("--node-policy", metavar="POLICY", shell_complete=complete_policy, help="Of all pods with devices.")
@click.option(
    "--gpu-policy", metavar="POLICY[,POLICY]", shell_complete=complete_policy, help="Of all pods with devices."
)
@click.option("--config", metavar="FILE", type=click.Path(), help="Policies and their arguments of a configuration.")
@_output
@color_option
@click.pass_context
def diff(
    context: click.Context,
    place: str,
    policy: str | None,
    node_policy: str | None,
    gpu_policy: str | None,
    config: str | None,
    output: str,
) -> None:
    """Say what other policies would have done with the recorded pods: places, waits, GPUs in use and free over time.

    Pods arrive as they did and run as long as they did. Without an option, the same policies decide in this version,
    at once and without the faults and delays of the recorded run.
    """
    from dovetail.cli import other_worlds
    from dovetail.cli.journals import JournalReader
    from dovetail.cli.output import encoding, hypotheses

    wanted, read = other_worlds.wanted(policy, node_policy, gpu_policy, config), JournalReader.of(place)
    with progress("Deciding again"):
        report = other_worlds.compare(read, wanted)
    read.tell()
    if output in encoding.FORMATS:
        echo(encoding.encode(hypotheses.document(report, wanted.title), output))
    else:
        echo_styled("\n".join(hypotheses.lines(report, wanted.title)))
    context.exit(BAD_INPUT if read.complaints() else 0)
