"""How a report was made: command, date and settings, given by the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.sim.report import tables
from dovetail.sim.report.markup import Html, join, tag

Setting = tuple[str, str, bool]  # an option, its value, and whether it was given (else it is the default)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a report. Unknown values are empty and left out of the page."""

    command: str = ""
    date: str = ""  # as shown on the page, with its time zone
    settings: Sequence[Setting] = ()


def origin_section(origin: Origin) -> Html:
    parts = []
    if origin.command:
        parts.append(tag("pre", tag("code", origin.command), class_="command", tabindex="0"))
    if origin.date:
        parts.append(tag("p", f"Written on {origin.date}.", class_="note"))
    if origin.settings:
        rows = [(name, value, "given" if given else "default") for name, value, given in origin.settings]
        table = tables.table(("Option", "Value", ""), rows, "Settings")
        parts.append(tag("details", tag("summary", "Settings"), table, class_="settings"))
    return join(*parts)
