"""Takes snapshots of a live cluster, and writes them."""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from collections import Counter
from typing import IO

import msgspec

from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions
from dovetail.cli.settings import settle, with_vendors
from dovetail.cli.sources import ReadCluster, read_live
from dovetail.kube.files import snapshot
from dovetail.kube.objects.problems import InputError, Problems

COMPRESSION = 6


def take(asked: ClusterOptions, anonymous: bool) -> ReadCluster:
    """Raises Refused if the cluster cannot be read."""
    problems = Problems()
    try:
        _, settings = settle(asked, problems)
        settings = with_vendors(settings, asked.device_config, problems)
    except InputError as error:
        raise Refused(*map(str, error.problems)) from error
    found = read_live(asked, settings.vendors)
    if not anonymous:
        return found
    from dovetail.kube.files.anonymous import anonymized

    return ReadCluster(anonymized(found.documents), msgspec.structs.replace(found.marker, anonymous=True))


def write(path: str, taken: ReadCluster) -> None:
    """Write the file as a whole or not at all. The same objects give the same bytes, also compressed.

    A symbolic link stays, and the file that it names is written. A device or a pipe is not replaced by a file.
    """
    if path == "-":
        _write(sys.stdout.buffer, taken, False)
        sys.stdout.buffer.flush()
        return
    real = os.path.realpath(path)
    if os.path.exists(real) and not os.path.isfile(real):
        raise Refused(f"{path}: it is not a regular file; write to a file, or to stdout with -o -")
    name = ""
    try:
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(real), prefix=".snapshot-", delete=False) as file:
            name = file.name
            _write(file, taken, path.endswith(".gz"))
        os.replace(name, real)
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if name and os.path.exists(name):
            os.unlink(name)


def _write(file: IO[bytes], taken: ReadCluster, packed: bool) -> None:
    lines = snapshot.encode(taken.marker, taken.documents)
    if not packed:
        file.writelines(lines)
        return
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=COMPRESSION, mtime=0) as packing:
        for line in lines:
            packing.write(line)


def summary(taken: ReadCluster) -> str:
    """`3 nodes, 12 pods, 4 other objects`"""
    kinds = Counter(document.kind for document in taken.documents)
    nodes, pods = kinds.pop("Node", 0), kinds.pop("Pod", 0)
    others = kinds.total()
    return f"{nodes:,} node{'s' * (nodes != 1)}, {pods:,} pod{'s' * (pods != 1)}, {others:,} other objects"
