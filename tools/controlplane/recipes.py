"""The programs of a control plane, and the pinned Go module from which each is built. Reads go.mod, runs nothing."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).parent.parent
VERSION = "k8s.io/component-base/version"
FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")

# series of Kubernetes -> folder of its module
SERIES = {"1.36": "kubernetes", "1.32": "kubernetes-1.32"}
NEWEST = "1.36"


@dataclass(frozen=True)
class Recipe:
    """Programs that are built from one Go module."""

    name: str
    folder: Path
    module: str  # its version is the version of the programs
    programs: tuple[tuple[str, str], ...]  # (program, package), in the order in which they are built
    tests: bool = False  # the programs are the packages' tests (`go test -c`)

    @property
    def version(self) -> str:
        text = (self.folder / "go.mod").read_text(encoding="utf-8")
        found = re.search(rf"(?m)^(?:require)?\s*{re.escape(self.module)} (v\S+)", text)
        if found is None:
            raise ValueError(f"{self.folder / 'go.mod'} does not require {self.module}")
        return found[1]

    @property
    def link_flags(self) -> str:
        """The flags of the linker. Without the -X flags, Kubernetes' programs do not know their patch version."""
        if self.module != "k8s.io/kubernetes":
            return "-s -w"
        major, minor = self.version.removeprefix("v").split(".")[:2]
        stamps = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
        return " ".join(["-s -w", *(f"-X {VERSION}.{key}={value}" for key, value in stamps.items())])

    def key(self, go_version: str) -> str:
        """A hash that changes with everything that the programs are built from."""
        parts = [(self.folder / name).read_bytes() for name in ("go.mod", "go.sum")]
        parts += [text.encode() for text in (go_version, *FLAGS, self.link_flags)]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]

    def home(self, go_version: str) -> Path:
        """The folder of the built programs. It exists only when all of them are built."""
        return cache() / f"{self.name}-{self.version}-{self.key(go_version)}"


def cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "dovetail" / "controlplane"


def kubernetes(series: str) -> Recipe:
    if series not in SERIES:
        raise ValueError(f"no recipe for Kubernetes {series}; there are {', '.join(SERIES)}")
    programs = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    return Recipe(
        "kubernetes",
        TOOLS / SERIES[series],
        "k8s.io/kubernetes",
        tuple((program, f"k8s.io/kubernetes/cmd/{program}") for program in programs),
    )


ETCD = Recipe("etcd", TOOLS / "etcd", "go.etcd.io/etcd/server/v3", (("etcd", "go.etcd.io/etcd/server/v3"),))
E2E = Recipe(
    "e2e", TOOLS / "e2e", "k8s.io/kubernetes", (("e2e.test", "k8s.io/kubernetes/test/e2e"),), tests=True
)  # Kubernetes' end-to-end specs, of the newest series
KWOK = Recipe("kwok", TOOLS / "kwok", "sigs.k8s.io/kwok", (("kwok", "sigs.k8s.io/kwok/cmd/kwok"),))
HELM = Recipe("helm", TOOLS / "helm", "helm.sh/helm/v4", (("helm", "helm.sh/helm/v4/cmd/helm"),))
