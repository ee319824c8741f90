"""Draws panels of curves as SVG without a library. The same panels give the same text."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dovetail.model.visible import visible

PANEL_WIDTH, PANEL_HEIGHT = 560, 330  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 40, 48  # room around its curves
LEGEND_ROW = 22
FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
INK, SOFT, GRID, PAPER = "#17191c", "#5b626b", "#e4e5e3", "#ffffff"


@dataclass(frozen=True, slots=True)
class Line:
    """A policy's curve and its band."""

    name: str
    colour: str
    dash: str
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    x_title: str
    x: Sequence[float]
    lines: Sequence[Line]
    from_zero: bool

    @property
    def y_range(self) -> tuple[float, float]:
        """The lowest and highest y: all of every band, with a margin."""
        low = min(min(line.low) for line in self.lines)
        high = max(max(line.high) for line in self.lines)
        if self.from_zero:
            low = min(low, 0.0)
        air = 0.06 * ((high - low) or 1.0)
        return (low if low == 0 else low - air), high + air


def draw_svg(panels: Sequence[Panel]) -> str:
    """The panels, two per row, with one legend for all."""
    columns = min(2, len(panels))
    width = columns * PANEL_WIDTH
    legend, head = _legend(panels, width)
    height = head + -(-len(panels) // columns) * PANEL_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{FONT}" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        *legend,
    ]
    for at, panel in enumerate(panels):
        parts.append(f'<g transform="translate({at % columns * PANEL_WIDTH} {head + at // columns * PANEL_HEIGHT})">')
        parts += [*_axes(panel), *_curves(panel), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _legend(panels: Sequence[Panel], width: int) -> tuple[list[str], int]:
    """The drawn elements, and their height. A name that does not fit begins a new row."""
    lines = {line.name: line for panel in panels for line in panel.lines}
    found, x, y = [], LEFT, LEGEND_ROW
    for name, line in lines.items():
        wide = 50 + round(7.2 * len(name))
        if x > LEFT and x + wide > width:
            x, y = LEFT, y + LEGEND_ROW
        found.append(f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}"{_stroke(line)}/>')
        found.append(_text(x + 28, y + 4, name, INK))
        x += wide
    return found, y + LEGEND_ROW


def _axes(panel: Panel) -> Iterator[str]:
    across, up = _scales(panel)
    yield _text(LEFT, 22, panel.title, INK, weight="600")
    rows = ticks(*panel.y_range, 5)
    for value in rows:
        y = f"{up(value):.1f}"
        yield f'<line x1="{LEFT}" x2="{PANEL_WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="{GRID}"/>'
        yield _text(LEFT - 8, up(value) + 4, tick_text(value, rows), SOFT, anchor="end")
    floor = PANEL_HEIGHT - BOTTOM
    columns = ticks(panel.x[0], panel.x[-1], 7)
    for value in columns:
        yield f'<line x1="{across(value):.1f}" x2="{across(value):.1f}" y1="{floor}" y2="{floor + 5}" stroke="{SOFT}"/>'
        yield _text(across(value), floor + 19, tick_text(value, columns), SOFT, anchor="middle")
    yield f'<line x1="{LEFT}" x2="{PANEL_WIDTH - RIGHT}" y1="{floor}" y2="{floor}" stroke="{SOFT}"/>'
    yield _text(PANEL_WIDTH - RIGHT, PANEL_HEIGHT - 10, panel.x_title, SOFT, anchor="end")


def _curves(panel: Panel) -> Iterator[str]:
    across, up = _scales(panel)

    def points(values: Sequence[float]) -> list[str]:
        return [f"{across(x):.1f},{up(value):.1f}" for x, value in zip(panel.x, values, strict=True)]

    for line in panel.lines:
        band = " ".join([*points(line.high), *reversed(points(line.low))])
        yield f'<polygon points="{band}" fill="{line.colour}" opacity="0.15"/>'
        yield f'<polyline points="{" ".join(points(line.mean))}" fill="none"{_stroke(line)}/>'


class _Scale:
    """Maps data to pixels."""

    def __init__(self, data: tuple[float, float], pixels: tuple[float, float]) -> None:
        self.start, self.origin = data[0], pixels[0]
        self.factor = (pixels[1] - pixels[0]) / ((data[1] - data[0]) or 1.0)

    def __call__(self, value: float) -> float:
        return self.origin + (value - self.start) * self.factor


def _scales(panel: Panel) -> tuple[_Scale, _Scale]:
    across = _Scale((panel.x[0], panel.x[-1]), (LEFT, PANEL_WIDTH - RIGHT))
    return across, _Scale(panel.y_range, (PANEL_HEIGHT - BOTTOM, TOP))


def _stroke(line: Line) -> str:
    dashes = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    return f' stroke="{line.colour}" stroke-width="2" stroke-linejoin="round"{dashes}'


def _text(x: float, y: float, text: str, fill: str, anchor: str = "start", weight: str = "400") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {where} fill="{fill}" font-weight="{weight}">{html.escape(visible(text))}</text>'


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from low to high, about `about` of them."""
    raw = (high - low) / about or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [at * step for at in range(first, last + 1)]


def tick_text(value: float, values: Sequence[float]) -> str:
    """The value with the fewest decimals that keep neighbouring ticks distinct."""
    step = values[1] - values[0] if len(values) > 1 else 1.0
    places = next((places for places in range(4) if abs(step - round(step, places)) < step / 1000), 3)
    return f"{value:,.{places}f}"
