"""The folder of `make cluster`: the kubeconfig and the logs. The logs stay when the cluster ends."""

from __future__ import annotations

import fcntl
import os
import shutil
from datetime import datetime
from pathlib import Path

KEPT = 5  # the newest folders of logs


class InUse(Exception):
    """Another process runs a cluster in this folder."""


class Home:
    """Use it as `with Home(path, now) as home:` while the cluster runs. A lock keeps other processes out."""

    def __init__(self, path: Path, now: datetime) -> None:
        self.path = path.resolve()
        self.kubeconfig = self.path / "kubeconfig"
        self.logs = self.path / f"logs-{now:%Y%m%d-%H%M%S}"

    def __enter__(self) -> Home:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / "lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise InUse(f"--home {self.path} cannot be used: {error.strerror}; name a folder that can") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise InUse(
                f"a cluster runs in {self.path} already (process {owner}): end it with Ctrl-C there, or name another "
                "folder: make cluster CLUSTER_HOME=/path"
            ) from error
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()
        self._forget_old()
        self.logs.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for left in (self.kubeconfig, *self.path.glob("*.pid")):
            left.unlink(missing_ok=True)
        self._lock.truncate(0)
        self._lock.close()

    def _forget_old(self) -> None:
        for folder in sorted(self.path.glob("logs-*"))[: -KEPT + 1 or None]:
            shutil.rmtree(folder, ignore_errors=True)
