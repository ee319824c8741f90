"""`dovetail policies`: lists the policies, with one sentence each."""

from __future__ import annotations

import click

from dovetail.cli.options import color_option, output_option
from dovetail.cli.output.terminal import echo, echo_styled


@click.command(short_help="List the node and GPU policies.")
@output_option
@color_option
def policies(output: str) -> None:
    """List the policies: which node (node policies), and which of its GPUs (GPU policies).

    A pod chooses by annotation, else --node-policy and --gpu-policy or the configuration decide:

    \b
      hami.io/node-scheduler-policy: binpack      or  dovetail.dev/node-policy
      hami.io/gpu-scheduler-policy: spread        or  dovetail.dev/gpu-policy

    They are grouped by purpose; -o json adds the source, when to use a policy (use) and when not (avoid).
    GPU policies can be chained: binpack,numa. A joint policy is named like a node policy and chooses the GPUs, too.

    \b
    Examples:
      dovetail policies
      dovetail policies -o json
    """
    from dovetail.cli.output import encoding, table
    from dovetail.model.pod import DEFAULT_PROFILE
    from dovetail.policies.purposes import CARD_PURPOSES, NODE_PURPOSES, PURPOSES
    from dovetail.policies.table import DEVICE_POLICIES, NODE_POLICIES

    purposes = {"node": NODE_PURPOSES, "gpu": CARD_PURPOSES}
    defaults = {"node": DEFAULT_PROFILE.node, "gpu": DEFAULT_PROFILE.device[0]}
    joint = {name for name, row in NODE_POLICIES.items() if row.offer is not None}
    rows = [("node", row.name, row.sentence) for row in NODE_POLICIES.values()]
    rows += [("gpu", row.name, row.sentence) for row in DEVICE_POLICIES.values()]
    if output in encoding.FORMATS:
        found = [
            {
                "axis": axis,
                "name": name,
                "default": defaults[axis] == name,
                "joint": axis == "node" and name in joint,
                "sentence": sentence,
                **purposes[axis][name]._asdict(),
            }
            for axis, name, sentence in rows
        ]
        echo(encoding.encode({"policies": found}, output))
        return
    for axis, title in (("node", "NODE POLICY"), ("gpu", "GPU POLICY")):
        shown = [
            (
                purposes[axis][name].purpose,
                f"{name} (default)" if defaults[axis] == name else f"{name} (joint)" if name in joint else name,
                sentence,
            )
            for of, name, sentence in rows
            if of == axis
        ]
        shown.sort(key=lambda row: PURPOSES.index(row[0]))
        echo_styled(table.render(("PURPOSE", title, "WHAT IT PREFERS"), shown))
        echo()
