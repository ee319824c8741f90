"""Kernels are kept between runs, as in tests/engine."""

from __future__ import annotations

from tests.engine.conftest import keeps_kernels

__all__ = ["keeps_kernels"]
