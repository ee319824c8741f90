"""What is said where numba is missing or cannot compile: the same words on stderr, in logs and in Python's warnings."""

from __future__ import annotations

INTERPRETED_INSTEAD = "kernels cannot be compiled here, all policies are interpreted"


class NotCompiledWarning(RuntimeWarning):
    """Decisions are the same, and take longer."""


def why(error: BaseException) -> str:
    """`ImportError: Numba needs NumPy 2.4 or less`: numba's own errors are of many kinds and have many lines."""
    first = next((line for line in str(error).splitlines() if line.strip()), "no message")
    return f"{type(error).__name__}: {first.strip()}"
