"""`dovetail plan`: shows where pods would land, and which stay pending and why. It changes nothing."""

from __future__ import annotations

from typing import Any

import click

from dovetail.cli.ending import ends_soon
from dovetail.cli.options import ClusterOptions, cluster_options, live_options
from dovetail.cli.output.progress import progress
from dovetail.cli.output.terminal import echo, echo_styled


@click.command(short_help="Place manifests on a cluster and show what would happen.")
@live_options
@cluster_options
@click.pass_context
def plan(context: click.Context, /, output: str, **asked: Any) -> None:
    """Place every pending pod of the manifests on the nodes of the manifests, and show what would happen.

    Nothing is changed anywhere. Bound pods hold their GPUs. Pending pods, and the replicas of workloads that do not
    exist yet, are placed in order of priority, age and name. With --live, the cluster is that of your kubeconfig, and
    the manifests are added to it.

    \b
    Examples:
      dovetail plan -f examples/demo/cluster.yaml -f examples/demo/demo-a.yaml
      dovetail plan -f cluster/ -f job.yaml --node-policy spread --gpu-policy binpack
      kubectl get nodes,pods -A -o yaml | dovetail plan -f - -f my-deployment.yaml
      dovetail plan -f cluster/ -f job.yaml -o json | jq .pending
      dovetail plan --live -f my-deployment.yaml
      dovetail snapshot -o cluster.json.gz && dovetail plan -f cluster.json.gz -f my-deployment.yaml

    Exit codes: 0 all is placed, 3 something stays pending, 2 the input is wrong.
    """
    context.with_resource(ends_soon())
    with progress("Reading"):
        from dovetail.cli import planning
        from dovetail.cli.output import encoding, plan_json, plan_table

        case = planning.read(ClusterOptions(**asked))
    with progress(planning.activity(case)):
        made = planning.plan(case)
    if output in encoding.FORMATS:
        echo(encoding.encode(plan_json.document(made), output))
    else:
        wide = output == "wide"
        for line in plan_table.problem_lines(made.problems, made.ignored, wide):
            echo_styled(line, err=True)
        echo_styled("\n".join(plan_table.lines(made, wide)))
    context.exit(planning.exit_code(made))
