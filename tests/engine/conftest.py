"""Hypothesis for the engine: the same examples in every run, and no deadline on a busy machine.

Kernels are kept between runs: numba reads where when it is imported, so the place is named before.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from dovetail import kernel_cache

KEEPS_KERNELS = kernel_cache.prepare()

settings.register_profile(
    "engine",
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("engine")


@pytest.fixture
def keeps_kernels() -> bool:
    return KEEPS_KERNELS
