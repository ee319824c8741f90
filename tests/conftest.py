"""Shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import properties

__all__ = ["properties"]  # loads the profile of property tests


@pytest.fixture(scope="session")
def examples() -> Path:
    """The folder of example manifests."""
    return Path(__file__).parent.parent / "examples"
