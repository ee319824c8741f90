"""The entry point: the list of commands, and the handling of errors. Exit codes: 0, 2, 3, 70, 130 (errors.py)."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn, TextIO

import click

from dovetail import __version__
from dovetail.cli.commands.compare import compare
from dovetail.cli.commands.completion import completion
from dovetail.cli.commands.config import config
from dovetail.cli.commands.demo import demo
from dovetail.cli.commands.doctor import doctor
from dovetail.cli.commands.explain import explain
from dovetail.cli.commands.extender import extender
from dovetail.cli.commands.generate import generate
from dovetail.cli.commands.get import get
from dovetail.cli.commands.journal import journal
from dovetail.cli.commands.plan import plan
from dovetail.cli.commands.policies import policies
from dovetail.cli.commands.replay import replay
from dovetail.cli.commands.scheduler import scheduler
from dovetail.cli.commands.shadow import shadow
from dovetail.cli.commands.snapshot import snapshot
from dovetail.cli.commands.top import top
from dovetail.cli.commands.trace import trace
from dovetail.cli.commands.warm import warm
from dovetail.cli.commands.webhook import webhook
from dovetail.cli.ending import end
from dovetail.cli.errors import BAD_INPUT, BUG, INTERRUPTED, Refused
from dovetail.cli.output.terminal import echo, say
from dovetail.model.not_compiled import NotCompiledWarning

DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class InOrder(click.Group):
    """A group that lists its commands in the order in which they were added: the most important ones first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=InOrder, context_settings=CONTEXT, no_args_is_help=True)
@click.version_option(__version__, "--version", prog_name="dovetail")
@click.option("--debug", is_flag=True, envvar="DOVETAIL_DEBUG", help="Show a traceback where something breaks.")
def cli(debug: bool) -> None:
    """A device-aware GPU scheduler for Kubernetes: a node and the GPUs on it, packed or spread, and why.

    \b
    Start here:
      dovetail demo
      dovetail plan -f examples/demo/cluster.yaml -f examples/demo/demo-a.yaml
      kubectl get nodes,pods -A -o yaml | dovetail plan -f - -f my-deployment.yaml
      dovetail explain my-deployment -f cluster.yaml -f my-deployment.yaml
      dovetail compare --policy best-fit,fgd --report report.html

    Exit codes: 0 all is placed, 3 something stays pending, 2 the input is wrong.
    """


for command in (
    demo,
    plan,
    explain,
    get,
    top,
    snapshot,
    scheduler,
    extender,
    webhook,
    doctor,
    journal,
    shadow,
    replay,
    compare,
    generate,
    trace,
    policies,
    config,
    warm,
    completion,
):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process. Exit code 70 means a bug in dovetail."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that cannot show a character, such as an arrow, gets a question mark
            stream.reconfigure(errors="replace")
    warnings.showwarning = _tell
    code = _run(given)
    if arguments is None:
        end(code)
    sys.exit(code)


def _tell(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a Python warning like our own messages.

    Warnings that are not ours include their place in the code, so that users can report them.
    """
    where = "" if issubclass(category, NotCompiledWarning) else f" ({category.__name__}, {filename}:{lineno})"
    say(f"warning: {message}{where}")


def _run(arguments: list[str]) -> int:
    try:
        code = cli.main(arguments, prog_name=_called(), standalone_mode=False, obj=tuple(arguments))
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message())
        return 0
    except click.ClickException as error:
        if isinstance(error, Refused):
            error.show()
            return error.exit_code
        said = io.StringIO()
        error.show(said)  # click's messages quote arguments, so `echo` must clean them
        echo(said.getvalue().rstrip("\n"), err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # the reader of our output closed the pipe
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK_TROUBLE:
            _drop_output()
            say(f"the output could not be written: {error.strerror}; make room, or write to another place")
            return BAD_INPUT
        _report(error, "--debug" in arguments or bool(os.environ.get("DOVETAIL_DEBUG")))
        return BUG


def _called() -> str:
    """The name by which users call us: `kubectl dovetail` where kubectl has found us as its plugin."""
    return "kubectl dovetail" if os.path.basename(sys.argv[0]).startswith("kubectl-") else "dovetail"


def _drop_output() -> None:
    """Send the rest of the output nowhere: Python would report the same error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: Exception, debug: bool) -> None:
    if debug:
        echo("".join(traceback.format_exception(error)).rstrip("\n"), err=True)
    text = (str(error) or "no message").splitlines()[0][:200]
    say(f"this is a bug of ours: {type(error).__name__}: {text}")
    if not debug:
        say("run it again with `dovetail --debug …` and report what it prints; thank you.")
