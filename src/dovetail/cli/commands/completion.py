"""`dovetail completion`: prints the script with which a shell completes dovetail's commands."""

from __future__ import annotations

import click

from dovetail.cli.output.terminal import echo

INSTALL = {  # shell -> the command that installs the script, shown as a comment on its first line
    "bash": "dovetail completion bash > ~/.local/share/bash-completion/completions/dovetail",
    "zsh": 'dovetail completion zsh > "${fpath[1]}/_dovetail"',
    "fish": "dovetail completion fish > ~/.config/fish/completions/dovetail.fish",
}


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(list(INSTALL)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete dovetail's commands, options and policies.

    \b
    Install it for good:
      dovetail completion bash > ~/.local/share/bash-completion/completions/dovetail
      dovetail completion zsh > "${fpath[1]}/_dovetail"
      dovetail completion fish > ~/.config/fish/completions/dovetail.fish
    \b
    Or for this shell only:
      eval "$(dovetail completion bash)"
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, shell
    script = kind(context.find_root().command, {}, "dovetail", "_DOVETAIL_COMPLETE")
    text = script.source_template % script.source_vars()  # not `source()`, which runs bash to find its version
    if shell != "zsh":  # zsh needs its #compdef line first
        echo(f"# To install: {INSTALL[shell]}")
    echo(text)
