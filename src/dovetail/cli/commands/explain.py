"""`dovetail explain`: says why a pod lands on its node, or why it waits and what would help."""

from __future__ import annotations

from typing import Any

import click

from dovetail.cli.ending import ends_soon
from dovetail.cli.errors import ALL_PLACED, BAD_INPUT, SOMETHING_PENDING
from dovetail.cli.options import ClusterOptions, cluster_options, live_options
from dovetail.cli.output.progress import progress
from dovetail.cli.output.terminal import echo, echo_styled, say


@click.command(short_help="Why a pod lands where it does, or why it waits.")
@click.argument("target", nargs=-1, required=True, metavar="[pod] NAME")
@live_options
@cluster_options
@click.pass_context
def explain(context: click.Context, /, target: tuple[str, ...], output: str, **asked: Any) -> None:
    """Say why the pod NAME lands where it does, or why it waits.

    For a placed pod: the scores of the runners-up. For a pending one: what every node lacks, and the smallest single
    change that would place it. The change has been tried, not guessed.

    NAME is a pod, or a workload, which stands for its first pending pod. Without -f, the cluster is that of your
    kubeconfig, and the answer is the one that the running scheduler writes as the pod's condition.

    \b
    Examples:
      dovetail explain pod train-0 -n ml
      dovetail explain summariser -n search -f examples/what-if
      dovetail explain pod demo-a-0 -f examples/demo/cluster.yaml -f examples/demo/demo-a.yaml
      kubectl get nodes,pods -A -o yaml | dovetail explain deployment/web -f - -f web.yaml -o wide

    Exit codes: 0 the pod has a place, 3 it stays pending, 2 the input is wrong.
    """
    context.with_resource(ends_soon())
    with progress("Reading"):
        from dovetail.cli import explaining, planning
        from dovetail.cli.output import encoding, plan_table
        from dovetail.cli.output import explanation as explain_text
        from dovetail.model.reason import Reason

        wanted = explaining.parse_target(target, asked["namespace"])
        asked["live"] = asked["live"] or not asked["filenames"]
        case = planning.read(ClusterOptions(**asked))
    with progress(planning.activity(case)):
        answer = explaining.answer(case, wanted)
    found, wide = answer.about, output == "wide"
    if output in encoding.FORMATS:
        echo(encoding.encode(explain_text.document(found, answer.problems), output))
    else:
        for line in plan_table.problem_lines(answer.problems if wide else answer.own, case.given.ignored, wide):
            echo_styled(line, err=True)
        others = len(answer.problems) - len(answer.own)
        if others and not wide:
            say(f"{others:,} remark{'s' * (others != 1)} on other objects; -o wide shows them")
        echo_styled("\n".join(explain_text.lines(found, wide)))
    refused = found.decision is not None and found.decision.reason == Reason.INVALID_REQUEST
    if refused or planning.of_severity(answer.own, "error"):
        context.exit(BAD_INPUT)
    context.exit(SOMETHING_PENDING if explain_text.state(found) == "pending" else ALL_PLACED)
