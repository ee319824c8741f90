"""The C library's heap, for a process that runs for months: freed blocks go back to the system.

glibc takes large blocks from the system one by one, and gives each back when it is freed. But when the first one is
freed, glibc raises the size from which it does so (mallopt(3), M_MMAP_THRESHOLD). Later blocks, such as the 256 KiB
that each TLS connection reads into, then lie between small ones, and leave holes. After some thousands of connections
the holes were as large as everything in use.
"""

from __future__ import annotations

import ctypes
import os

MMAP_FROM_BYTES = 128 << 10  # glibc's value at the start
_MMAP_THRESHOLD = -3  # a parameter of mallopt, from malloc.h


def keep_compact() -> bool:
    """Keep the size from which blocks are taken and given back one by one. False: another C library, or it is set."""
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, MMAP_FROM_BYTES))
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return False
