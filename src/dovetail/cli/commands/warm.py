"""`dovetail warm`: compiles kernels in advance, into the folder where later runs find them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions
from dovetail.cli.output.terminal import echo

if TYPE_CHECKING:
    from dovetail.engine.kernel.build import Pair


@click.command(short_help="Compile kernels beforehand, for example into an image.")
@click.argument("policies", nargs=-1, metavar="[NODE_POLICY[:GPU_POLICY,…]]…")
@click.option(
    "--config", envvar="DOVETAIL_CONFIG", show_envvar=True, metavar="FILE", type=click.Path(), help="Its policies, too."
)
def warm(policies: tuple[str, ...], config: str | None) -> None:
    """Compile the kernels of these pairs of policies, and those of the configuration.

    They are kept in $DOVETAIL_CACHE_DIR (default: ~/.cache/dovetail), for this version of Dovetail and this kind of
    processor; with NUMBA_CPU_NAME=generic for every processor of the architecture. A scheduler that finds its
    kernels there, or in $DOVETAIL_KERNELS, starts in a second.

    \b
    Examples:
      dovetail warm
      dovetail warm binpack:binpack spread:spread fgd
    """
    from dovetail import kernel_cache, own_folder

    if not kernel_cache.prepare():  # must come before numba is imported
        unused = "; ".join(own_folder.notices()) or f"{kernel_cache.home()} cannot be written to"
        raise Refused(f"{unused}; set DOVETAIL_CACHE_DIR to a folder that can")
    from dovetail.kube.live import warm as workshop
    from dovetail.model.not_compiled import why

    for pair in _wanted(policies, config):
        started = time.monotonic()
        try:
            workshop.warm([pair], on_disk=True)
        except Exception as error:  # numba and LLVM raise errors of any kind
            raise Refused(f"{workshop.title(pair)}: kernels cannot be compiled here: {why(error)}") from error
        echo(f"{workshop.title(pair)}: {time.monotonic() - started:.1f} s")


def _wanted(policies: tuple[str, ...], config: str | None) -> list[Pair]:
    """The policies of the configuration, or the defaults if it names no schedulers; then those of the command line."""
    from dovetail.cli.settings import scheduler_profiles, settle
    from dovetail.kube.live import warm as workshop
    from dovetail.kube.objects.problems import Problems

    given, settings = settle(ClusterOptions(config=config), Problems())
    profiles = scheduler_profiles(given, settings, (), str(config)) or {"": settings}
    try:
        named = [workshop.read(text) for text in policies]
    except ValueError as error:
        raise Refused(str(error)) from error
    return list(dict.fromkeys([*workshop.pairs_of(profiles.values()), *named]))
