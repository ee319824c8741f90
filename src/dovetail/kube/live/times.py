"""Times in the API server's formats."""

from __future__ import annotations

from datetime import UTC, datetime


def to_second(seconds: float) -> str:
    """The time as metav1.Time, and as RFC 3339 in HAMi's form."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_microsecond(seconds: float) -> str:
    """The time as metav1.MicroTime: for leases and events."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
