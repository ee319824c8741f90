"""Writes one HTML page with the findings of the replays; see docs/report.md."""

from dovetail.sim.report.page import write_report

__all__ = ["write_report"]
