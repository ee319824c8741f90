"""The message for a missing or failing numba: the same words on stderr, in logs and in Python's warnings."""

from __future__ import annotations

INTERPRETED_INSTEAD = "kernels cannot be compiled here, all policies are interpreted"


class NotCompiledWarning(RuntimeWarning):
    """Kernels are interpreted: the decisions are the same, but take longer."""


def why(error: BaseException) -> str:
    """The type and first line of an error: `ImportError: Numba needs NumPy 2.4 or less`.

    numba's errors have many types and many lines.
    """
    first = next((line for line in str(error).splitlines() if line.strip()), "no message")
    return f"{type(error).__name__}: {first.strip()}"
