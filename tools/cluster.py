"""`make cluster`: a real control plane with the two demo nodes, a stand-in kubelet and dovetail, until Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from tools.controlplane.access import grant_dovetail
from tools.controlplane.binaries import Missing
from tools.controlplane.client import Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane
from tools.controlplane.process import Failed, Process

DEMO = Path(__file__).parent.parent / "examples" / "demo"
DOVETAIL = Path(sys.executable).parent / "dovetail"
SCHEDULER = "dovetail"  # spec.schedulerName of the pods that are dovetail's
START_SECONDS = 1.0  # a pod that runs at once shows a person nothing


def documents(path: Path) -> list[Object]:
    return [item for item in yaml.safe_load_all(path.read_text(encoding="utf-8")) if item]


def write_demos(folder: Path) -> list[Path]:
    """The demo's Deployments, with dovetail as their scheduler: the examples leave that to the reader's cluster."""
    written = []
    for path in sorted(DEMO.glob("demo-?.yaml")):
        items = documents(path)
        for item in items:
            item["spec"]["template"]["spec"]["schedulerName"] = SCHEDULER
        (folder / path.name).write_text(yaml.safe_dump_all(items, sort_keys=False), encoding="utf-8")
        written.append(folder / path.name)
    return written


def start_dovetail(plane: ControlPlane) -> Process | None:
    """`dovetail scheduler` with the rights that are shipped; None if this dovetail has no such command."""
    if subprocess.run([DOVETAIL, "scheduler", "--help"], capture_output=True).returncode != 0:
        return None
    grant_dovetail(plane.client())
    command: list[str | Path] = [DOVETAIL, "scheduler", "--kubeconfig", plane.kubeconfig("dovetail")]
    return Process("dovetail", command, plane.path / "dovetail.log", PYTHONUNBUFFERED="1")


def describe(plane: ControlPlane, dovetail: Process | None, demo: Path) -> str:
    version = plane.client().ask("GET", "/version")["gitVersion"]
    if dovetail:
        scheduler = f"dovetail schedules pods with schedulerName: {SCHEDULER}, once {dovetail.log} says ready."
    else:
        scheduler = "`dovetail scheduler` is not there: pods will wait. Everything else works."
    lines = [
        f"Kubernetes {version} at {plane.url}, with two nodes of four GPUs. In another terminal:",
        "",
        f"  export KUBECONFIG={plane.kubeconfig()}",
        f"  export PATH={plane.binaries.path('kubectl').parent}:$PATH",
        f"  kubectl apply -f {demo}",
        "  kubectl get pods -o wide",
        "  kubectl describe pods",
        "",
        f"demo-b, demo-c and demo-d are beside it. Logs of the components: {plane.path}/*.log",
        scheduler,
        "Ctrl-C stops all of it and deletes its files.",
    ]
    return "\n".join(lines)


def watch_over(plane: ControlPlane, dovetail: Process | None) -> None:
    """Returns never; raises when something ends that should not."""
    names = ("etcd", "kube-apiserver", "kube-controller-manager")
    processes = [*(plane.process(name) for name in names), *([dovetail] if dovetail else [])]
    while True:
        for process in processes:
            if not process.running():
                raise Failed(f"{process.name} has ended; it said last:\n{process.last_words()}")
        time.sleep(0.5)


def main() -> None:
    print("Starting a control plane (a few seconds)", flush=True)
    with ControlPlane() as plane:
        plane.start_controller_manager()
        for node in documents(DEMO / "cluster.yaml"):
            plane.client().create(node)
        demos = write_demos(plane.path)
        with Kubelet(plane.client().access) as kubelet:
            kubelet.start_delay = START_SECONDS
            dovetail = start_dovetail(plane)
            try:
                print(describe(plane, dovetail, demos[0]), flush=True)
                watch_over(plane, dovetail)
            finally:
                if dovetail:
                    dovetail.stop()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in what a script puts into the background
        signal.signal(number, interrupt)
    try:
        main()
    except KeyboardInterrupt:
        print("\nStopped")
    except (Failed, Missing) as error:
        sys.exit(str(error))
