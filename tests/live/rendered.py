"""What kustomize and Helm make of deploy/, as objects that can be compared."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tools.controlplane.access import DEPLOY
from tools.controlplane.binaries import Binaries
from tools.controlplane.client import Object

Key = tuple[str, str, str, str]  # API version, kind, namespace, name
FOLDERS = {
    path.parent.name: path.parent.relative_to(DEPLOY)
    for path in (*DEPLOY.glob("optional/*/kustomization.yaml"), *DEPLOY.glob("monitoring/kustomization.yaml"))
}
COMPONENTS = sorted(FOLDERS)
# The extender replaces the scheduler; monitoring contains service-monitor; webhook-alone serves what webhook does.
TOGETHER = [name for name in COMPONENTS if name not in ("extender", "service-monitor", "webhook-alone")]
# What Helm adds to the labels, by its own guidelines (helm.sh/docs/chart_best_practices/labels); all else is the same.
OF_HELM = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}
SECONDS = 180.0  # for one command; a rollout takes a few seconds
CONFIG_HASH = "dovetail.dev/config"  # the chart starts new pods for another configuration


def value_of(component: str) -> str:
    """The value of the chart that switches a component on: hami-lock is hamiLock."""
    first, *rest = component.split("-")
    return first + "".join(word.capitalize() for word in rest)


def switched_on(*components: str, **more: Any) -> Object:
    return {value_of(name): {"enabled": True} for name in components} | more


class Failure(Exception):
    """The command ended with an error; the message is what it said."""


class Programs:
    """kubectl and Helm with a room of their own."""

    def __init__(self, binaries: Binaries, room: Path, kubeconfig: Path | None = None) -> None:
        self._binaries, self.room = binaries, room
        homes = {f"HELM_{name}_HOME": str(room / f"helm-{name}") for name in ("CACHE", "CONFIG", "DATA")}
        self._env = {**os.environ, **homes, "KUBECONFIG": str(kubeconfig or room / "no-kubeconfig")}

    def run(self, program: str, *arguments: str | Path) -> tuple[str, str]:
        """stdout and stderr."""
        command = [str(self._binaries.path(program)), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=self._env, cwd=self.room, timeout=SECONDS)
        if done.returncode != 0:
            raise Failure(f"{program} {' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout, done.stderr

    def overlay(self, *components: str, **more: Any) -> Path:
        """A folder with a kustomization that a platform team would write: the base, some components, its own lines."""
        folder = self.room / f"overlay-{len(list(self.room.glob('overlay-*')))}"
        folder.mkdir()
        here = os.path.relpath(DEPLOY.resolve(), folder.resolve())
        document = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [here],
            "components": [f"{here}/{FOLDERS[name]}" for name in components],
            **more,
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        return folder

    def kustomized(self, folder: Path) -> list[Object]:
        said, complaints = self.run("kubectl", "kustomize", folder)
        assert complaints == ""
        return objects(said)

    def values(self, values: Mapping[str, Any]) -> Path:
        path = self.room / f"values-{len(list(self.room.glob('values-*')))}.yaml"
        path.write_text(json.dumps(values), encoding="utf-8")
        return path

    def templated(self, values: Mapping[str, Any], namespace: str = "kube-system") -> list[Object]:
        options = ("--namespace", namespace, "--values", self.values(values))
        said, complaints = self.run("helm", "template", "dovetail", DEPLOY, *options)
        assert complaints == ""
        return objects(said)


def objects(text: str) -> list[Object]:
    return [item for item in yaml.safe_load_all(text) if item]


def by_key(items: list[Object]) -> dict[Key, Object]:
    found = {key_of(item): item for item in items}
    assert len(found) == len(items)
    return found


def key_of(item: Object) -> Key:
    meta = item["metadata"]
    return item["apiVersion"], item["kind"], meta.get("namespace", ""), meta["name"]


def same_but_for_helm(item: Object) -> Object:
    """Without what only the chart writes; a configuration counts as what it says."""
    item = json.loads(json.dumps(item))
    _drop(item["metadata"], "labels", OF_HELM)
    if item["kind"] == "Deployment":
        _drop(item["spec"]["template"]["metadata"], "annotations", {CONFIG_HASH})
    if item["kind"] == "ConfigMap":
        item["data"] = {name: yaml.safe_load(text) for name, text in item["data"].items()}
    return item


def _drop(meta: Object, field: str, names: set[str]) -> None:
    left = {name: value for name, value in meta.get(field, {}).items() if name not in names}
    if left:
        meta[field] = left
    else:
        meta.pop(field, None)
