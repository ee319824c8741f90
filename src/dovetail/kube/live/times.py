"""Moments as the API server writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def to_second(seconds: float) -> str:
    """metav1.Time, and RFC 3339 as HAMi writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_microsecond(seconds: float) -> str:
    """metav1.MicroTime: of leases and events."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
