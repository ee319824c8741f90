"""Shared by all tests."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests import properties

__all__ = ["properties"]  # loads the profile of property tests


@pytest.fixture(scope="session")
def examples() -> Path:
    """The folder of example manifests."""
    return Path(__file__).parent.parent / "examples"


def pytest_configure() -> None:
    """Ctrl-C can be tested: children inherit SIGINT as ignored from a shell that started the tests with `&`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
