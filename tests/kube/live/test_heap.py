"""Large blocks that are freed go back to the system, however many came and went before."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from dovetail.kube.live import heap

# The holes of glibc's heap in MiB, after 2,000 connections of which each reads into 256 KiB, with small values between.
CONNECTIONS = """
import ctypes, sys
from dovetail.kube.live.heap import keep_compact

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

if sys.argv[1] == "compact":
    assert keep_compact()
small, lines = [], []
for number in range(2_000):
    lines.append(bytearray(256 << 10))
    small.append(bytearray(600 + number % 400))
    if len(lines) > 60:
        del lines[number % 60]
del lines
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
print(libc.mallinfo2().fordblks >> 20)
"""


def holes(how: str) -> int:
    command = [sys.executable, "-c", CONNECTIONS, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_connections_that_are_gone_leave_no_holes() -> None:
    """glibc keeps such blocks from the second one on: half of what an hour of churn added were holes."""
    loose, compact = holes("loose"), holes("compact")
    print(f"holes: {loose} MiB, {compact} MiB")
    assert compact <= 1 < loose


def test_a_value_that_the_operator_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "MALLOC_MMAP_THRESHOLD_", "1000000")
    assert heap.keep_compact() is False
