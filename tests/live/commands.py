"""For tests of everyday commands: the command line as a process, as a user with the rights of a viewer alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.controlplane.access import DEPLOY, grant_dovetail
from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane

BIN = Path(sys.executable).parent
VIEWER = DEPLOY / "optional" / "viewer" / "objects.yaml"


def grant_viewer(api: Client) -> None:
    """Give the user `nobody` the shipped ClusterRole."""
    grant_dovetail(api, VIEWER)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "viewers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dovetail-viewer"},
        "subjects": [{"kind": "User", "name": "nobody", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    if api.find("ClusterRoleBinding", "viewers") is None:
        api.create(binding)


class Commands:
    """`dovetail …` with the kubeconfig of a user."""

    def __init__(self, plane: ControlPlane, user: str = "nobody") -> None:
        self.environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig(user)), "NO_COLOR": "1"}

    def run(self, *words: str, code: int = 0, program: str = "dovetail") -> str:
        done = self.ended(*words, program=program)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def ended(self, *words: str, program: str = "dovetail") -> subprocess.CompletedProcess[str]:
        # As the script of that name would: other checkouts may not have installed it yet.
        script = f"import sys; sys.argv[0] = {program!r}; from dovetail.cli.main import main; main()"
        command = [sys.executable, "-c", script, *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "-o", "json", code=code))

    def started(self, *words: str) -> subprocess.Popen[str]:
        command = [str(BIN / "dovetail"), *words]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
