"""Finds the programs of a control plane: in KUBEBUILDER_ASSETS if that is set, else in the cache of built programs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail import own_folder
from tools.controlplane.building import CannotBuild, go_version
from tools.controlplane.recipes import ETCD, HELM, KWOK, NEWEST, Recipe, cache, kubernetes

ASSETS = "KUBEBUILDER_ASSETS"
CHOICE = "DOVETAIL_KUBERNETES"  # the series of Kubernetes, such as 1.32
NEEDED = ("etcd", "kube-apiserver", "kubectl")


class Missing(Exception):
    """A program is missing; the message says how to get it."""


@dataclass(frozen=True)
class Binaries:
    paths: Mapping[str, Path]  # program -> file
    origin: str

    def path(self, program: str) -> Path:
        if program not in self.paths:
            raise Missing(f"{program} is not among the programs of {self.origin}")
        return self.paths[program]

    def has(self, program: str) -> bool:
        return program in self.paths


def series() -> str:
    """The requested series of Kubernetes, such as `1.36`."""
    return os.environ.get(CHOICE) or NEWEST


def find() -> Binaries:
    """The programs that exist. Builds nothing: a build takes minutes, and a test must not start one."""
    assets = os.environ.get(ASSETS)
    return _in_assets(Path(assets)) if assets else _in_cache()


def recipes(asked: str) -> list[Recipe]:
    """The recipes for a control plane of this series."""
    return [kubernetes(asked), ETCD]


def _in_assets(folder: Path) -> Binaries:
    programs = [*NEEDED, "kube-controller-manager", "kube-scheduler", "kwok", "helm"]
    paths = {program: folder / program for program in programs if os.access(folder / program, os.X_OK)}
    lacking = [program for program in NEEDED if program not in paths]
    if lacking:
        raise Missing(f"{ASSETS} is {folder}, where there is no {' and no '.join(lacking)}")
    return Binaries(paths, f"{ASSETS}={folder}")


def _in_cache() -> Binaries:
    if why := own_folder.why_not_ours(cache()):
        raise Missing(f"programs in {cache()} are not run: {why}")
    paths: dict[str, Path] = {}
    try:
        for recipe in recipes(series()):
            if not (home := _home(recipe)).is_dir():
                raise Missing(
                    f"{recipe.name} {recipe.version} is not built yet: run `make controlplane` (minutes, once)"
                )
            paths |= {program: home / program for program, _ in recipe.programs}
        for recipe in (KWOK, HELM):
            if (home := _home(recipe)).is_dir():
                paths |= {program: home / program for program, _ in recipe.programs}
    except CannotBuild as error:
        raise Missing(str(error)) from error
    return Binaries(paths, f"Kubernetes {series()} built by `make controlplane`")


def _home(recipe: Recipe) -> Path:
    return recipe.home(go_version(recipe.folder))
