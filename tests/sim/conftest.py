"""Public traces are not part of this repository: tests that replay them look for a copy, and are skipped without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def data_dir() -> Path:
    """$DOVETAIL_DATA, else shared/data beside this clone. Skips the test where neither is there."""
    given = os.environ.get("DOVETAIL_DATA")
    folder = Path(given) if given else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no public traces in {folder}; set DOVETAIL_DATA to a folder that has openb/ of the FGD paper")
    return folder


@pytest.fixture(scope="session")
def openb() -> Path:
    """The folder of the openb trace."""
    folder = data_dir() / "openb"
    if not folder.is_dir():
        pytest.skip(f"no openb trace in {folder}")
    return folder
