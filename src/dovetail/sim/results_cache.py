"""Keeps results on disk between runs, each in a file named by the hash of everything that it depends on.

A file that is damaged or of another version is ignored: the run is made again and the file is overwritten.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec

from dovetail import kernel_cache, own_folder
from dovetail.sim.results import Result
from dovetail.sim.runs import fingerprint

FORGET_AFTER_DAYS = 30
MAX_RESULT_BYTES = 256 * 2**20  # bytes of a result, unpacked
_DECODER: msgspec.msgpack.Decoder[Result] = msgspec.msgpack.Decoder(Result)


class ResultsCache:
    """The cache. Each version of the sources has its own folder, so that folders of old versions can be removed."""

    def __init__(self, home: Path | None = None) -> None:
        self.folder = (home or kernel_cache.home()) / f"results-{fingerprint()}"
        self._ours = False
        with suppress(OSError):
            self._ours = own_folder.use(self.folder) is not None

    def get(self, key: str) -> Result | None:
        if not self._ours:
            return None
        try:
            packed = self._path(key).read_bytes()
            return _DECODER.decode(zlib.decompressobj().decompress(packed, MAX_RESULT_BYTES))
        except (OSError, zlib.error, msgspec.MsgspecError):
            return None

    def put(self, key: str, result: Result) -> None:
        """Write the result completely or not at all.

        Nothing is kept if the folder cannot be written, or if other users may write to it.
        """
        if not self._ours:
            return
        path = self._path(key)
        fresh = path.with_suffix(f".{os.getpid()}")
        packed = zlib.compress(msgspec.msgpack.encode(result), 1)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(packed)
            fresh.replace(path)

    def forget_old(self) -> None:
        """Remove the results of source versions that were not used for FORGET_AFTER_DAYS."""
        if not self._ours:
            return
        with suppress(OSError):
            os.utime(self.folder)
        limit = time.time() - FORGET_AFTER_DAYS * 86_400
        for folder in self.folder.parent.glob("results-*"):
            with suppress(OSError):
                if folder != self.folder and folder.stat().st_mtime < limit:
                    shutil.rmtree(folder, ignore_errors=True)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.bin"
