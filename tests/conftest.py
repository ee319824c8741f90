"""Shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def examples() -> Path:
    """The folder of example manifests."""
    return Path(__file__).parent.parent / "examples"
