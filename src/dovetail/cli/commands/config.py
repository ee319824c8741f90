"""`dovetail config`: the schema of the configuration file, checks, and the configuration in effect."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dovetail.cli.options import ClusterOptions, color_option, complete_policy, output_option
from dovetail.cli.output.terminal import echo, echo_styled


@click.group(short_help="Check and show configuration files; print their schema.")
def config() -> None:
    """Check and show configuration files, and print their JSON schema.

    \b
    Examples:
      dovetail config check deploy/config.yaml
      dovetail config show --config config.yaml --node-policy spread
      dovetail config schema > dovetail-config.schema.json
    """


@config.command(short_help="Print the JSON schema of the configuration file.")
def schema() -> None:
    """Print the JSON schema (draft 2020-12) of the configuration file, for editors and CI.

    \b
    Editors with the YAML language server read it from the first line of a file:
      # yaml-language-server: $schema=dovetail-config.schema.json
    """
    from dovetail.cli.config_schema import schema_text

    echo(schema_text().rstrip("\n"))


@config.command(short_help="Check configuration files.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_option
def check(files: tuple[Path, ...], output: str) -> None:
    """Check each FILE as `dovetail scheduler --config` does, and the files that it names.

    Exit codes: 0 all can be used, 2 at least one cannot. Each error names the file, the field, what was read and what
    to write.

    \b
    Examples:
      dovetail config check config.yaml
      dovetail config check -o json clusters/*/dovetail.yaml
    """
    from dovetail.cli.config_reading import checked
    from dovetail.cli.output import encoding

    results = [checked(path) for path in files]
    if output in ("table", "wide"):
        for one in results:
            for error in one["errors"]:
                echo(f"error: {error}", err=True)
            for warning in one["warnings"]:
                echo(f"warning: {warning}", err=True)
            if one["ok"]:
                echo(f"{one['file']}: ok")
    else:
        echo(encoding.encode({"files": results}, output))
    sys.exit(0 if all(one["ok"] for one in results) else 2)


@config.command(short_help="Show the configuration in effect, and where each value comes from.")
@click.option(
    "--config", "file", envvar="DOVETAIL_CONFIG", show_envvar=True, metavar="FILE", type=click.Path(), help="The file."
)
@click.option("--node-policy", metavar="POLICY", shell_complete=complete_policy, help="As for the other commands.")
@click.option("--gpu-policy", metavar="POLICY", shell_complete=complete_policy, help="As for the other commands.")
@click.option("--device-config", metavar="FILE", type=click.Path(), help="As for the other commands.")
@click.option("--allow-policy", "allowed", metavar="POLICY", multiple=True, help="As for `dovetail scheduler`.")
@click.option("--changed", is_flag=True, help="Only values that are not the default.")
@output_option
@color_option
def show(
    file: str | None,
    node_policy: str | None,
    gpu_policy: str | None,
    device_config: str | None,
    allowed: tuple[str, ...],
    changed: bool,
    output: str,
) -> None:
    """Show every value: that of the command line, else that of the file, else the default.

    \b
    Examples:
      dovetail config show --config config.yaml
      dovetail config show --config config.yaml --node-policy spread --changed
      dovetail config show -o json
    """
    from dovetail.cli.config_reading import effective, rows_of
    from dovetail.cli.output import encoding

    asked = ClusterOptions(
        node_policy=node_policy,
        gpu_policy=gpu_policy,
        config=file,
        device_config=device_config,
        allowed_policies=allowed,
    )
    values = [one for one in effective(asked) if one.source != "default" or not changed]
    if output in ("table", "wide"):
        for line in rows_of(values):
            echo_styled(line)
        return
    echo(encoding.encode({"values": [one.document for one in values]}, output))
