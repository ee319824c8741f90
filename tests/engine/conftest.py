"""Kernels are kept between runs: numba reads where when it is imported, so the place is named before."""

from __future__ import annotations

import pytest

from dovetail import kernel_cache

KEEPS_KERNELS = kernel_cache.prepare()


@pytest.fixture
def keeps_kernels() -> bool:
    return KEEPS_KERNELS
