"""One HTML page that says what the replays found; see docs/report.md."""

from dovetail.sim.report.page import write_report

__all__ = ["write_report"]
