"""Checks that no other user can write to a cache folder: loading a compiled kernel, a pickle, runs its code.

It is outside the layers, beside `kernel_cache.py`.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

PRIVATE_VARIABLE = "DOVETAIL_PRIVATE_VOLUMES"  # folders separated by ":"; set by deploy/deployment.yaml
_OTHERS_WRITE, _OTHERS_ENTER = 0o022, 0o011

_refused: dict[str, str] = {}  # folder -> why it is not used
_told: set[str] = set()


def why_not_ours(folder: Path) -> str:
    """The reason why another user may change files in the folder, or "". The folder need not exist yet.

    The folder and all folders above it must belong to this user or to root. Other users must not be able to write to
    them. For the folders above, the sticky bit (as of /tmp) is enough. A volume that only this pod mounts is not
    checked: kubelet gives an emptyDir to root with mode 0777. PRIVATE_VARIABLE names such volumes.
    """
    if not hasattr(os, "geteuid"):
        return ""
    real = Path(os.path.realpath(folder))
    private = {os.path.realpath(path) for path in os.environ.get(PRIVATE_VARIABLE, "").split(os.pathsep) if path}
    for path in (real, *real.parents):
        if str(path) in private:
            return ""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{path} cannot be looked at: {error.strerror}"
        if found.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to user {found.st_uid}, not to user {os.geteuid()}, who runs dovetail, nor to root"
        sticky = path != real and found.st_mode & stat.S_ISVTX
        if found.st_mode & _OTHERS_WRITE and not sticky:
            return f"other users may write to {path} (mode {stat.S_IMODE(found.st_mode):04o}): chmod go-w {path}"
    return ""


def use(folder: Path) -> Path | None:
    """Make a folder for cached files only, closed to other users.

    Returns its real path, or None if other users may write to it; `notices` says why. Raises OSError if it cannot be
    made.
    """
    if _refuse(folder, why_not_ours(folder)):
        return None
    real = Path(os.path.realpath(folder))
    for path in (*reversed(real.parents), real):
        if not path.exists():
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
    # Check again: if a folder above is sticky, another user may have made this folder in between.
    if Path(os.path.realpath(folder)) != real or _refuse(folder, why_not_ours(real)):
        return None
    _close(real)
    return real


def _close(folder: Path) -> None:
    """Close the folder to other users, and delete files in it that another user made or could have changed."""
    found = os.stat(folder)
    if not hasattr(os, "geteuid") or found.st_uid != os.geteuid():
        return
    was_open = bool(found.st_mode & _OTHERS_ENTER)
    if was_open:
        os.chmod(folder, 0o700)
    for path in folder.rglob("*"):
        if not _is_ours(path, was_open):
            path.unlink()


def _is_ours(path: Path, was_open: bool) -> bool:
    found = os.lstat(path)
    if stat.S_ISDIR(found.st_mode):
        return True
    changeable = was_open and found.st_mode & _OTHERS_WRITE
    return stat.S_ISREG(found.st_mode) and found.st_uid in (0, os.geteuid()) and not changeable


def _refuse(folder: Path, why: str) -> bool:
    if why:
        _refused[str(folder)] = why
    return bool(why)


def may_write_to(folder: Path) -> bool:
    """True if no other user may write to this folder, which was given to numba. The folder is not changed."""
    return not _refuse(folder, why_not_ours(folder))


def may_read_from(folder: Path) -> bool:
    """True if files of the installation may be loaded: the folder and its files belong to this user or to root."""
    return not _refuse(folder, why_not_ours(folder) or _foreign_file(folder))


def _foreign_file(folder: Path) -> str:
    if not hasattr(os, "geteuid"):
        return ""
    foreign = next((path for path in sorted(folder.rglob("*")) if not _is_ours(path, was_open=True)), None)
    return f"other users may change {foreign}" if foreign else ""


def notices() -> list[str]:
    """One sentence for each folder that is not used; each is returned only once."""
    fresh = {folder: why for folder, why in _refused.items() if folder not in _told}
    _told.update(fresh)
    return [f"nothing is loaded from or kept in {folder}: {why}" for folder, why in fresh.items()]
