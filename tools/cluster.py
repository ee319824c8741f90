"""`make cluster`: a real control plane with GPU nodes, a stand-in kubelet and Dovetail, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tools.controlplane import objects, pod_groups, webhook
from tools.controlplane.access import grant_dovetail
from tools.controlplane.binaries import Missing
from tools.controlplane.client import Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import CONTROLLERS, ControlPlane, Options
from tools.controlplane.process import Failed, free_ports
from tools.home import Home, InUse
from tools.supervisor import Replica

ROOT = Path(__file__).parent.parent
DEMO_NODES = ROOT / "examples" / "demo" / "cluster.yaml"
DOVETAIL = Path(sys.executable).parent / "dovetail"
SCHEDULER_NAMES = ("dovetail", "default-scheduler")  # the cluster has no other scheduler
START_SECONDS = 1.0  # from bound to Running, so that users can see pods start
READY_SECONDS = 120.0  # until Dovetail is ready
# Includes the controller that deletes pods of deleted nodes: users delete nodes to see what happens.
RUN_CONTROLLERS = f"{CONTROLLERS} pod-garbage-collector"
TO_TRY = (
    ("kubectl apply -f examples/demo", "16 pods by four strategies"),
    ("kubectl get events --field-selector reason=Scheduled", "the node and the GPUs of each"),
    ("kubectl get nodes,pods -A -o yaml | dovetail plan -f - -f examples/guide/node-spread.yaml", "what if?"),
    ("kubectl scale deployment demo-a --replicas=12", "four more than fit"),
    ("kubectl get nodes,pods -A -o yaml | dovetail explain demo-a -f -", "why they wait"),
)
PODS_PER_CARD = 2  # of demo-a on a generated node: 7,500 of 15,360 MiB each
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager")


@dataclass(frozen=True)
class Wanted:
    """The options of the command line. Without `nodes` and `gpus`: the two nodes of examples/demo."""

    nodes: int | None = None
    gpus: int | None = None  # of each node
    replicas: int = 1
    config: Path | None = None
    port: int | None = None
    home: Path = ROOT / "build" / "cluster"
    verbose: bool = False

    @property
    def has_demo_nodes(self) -> bool:
        return self.nodes is None and self.gpus is None


def between(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return number


def read_arguments(arguments: Sequence[str] | None = None) -> Wanted:
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__)
    parser.add_argument("--nodes", type=between(1, 1000), help="GPU nodes (default: the two nodes of examples/demo)")
    parser.add_argument("--gpus", type=between(0, 16), help="GPUs of each node (default: 4), each a T4 with 15,360 MiB")
    parser.add_argument("--replicas", type=between(0, 9), default=1, help="Dovetail processes, of which one schedules")
    parser.add_argument("--config", type=Path, help="Dovetail's configuration")
    parser.add_argument("--port", type=between(1024, 65535), help="of the API server (default: any that is free)")
    parser.add_argument("--home", type=Path, default=Wanted.home, help="folder of the kubeconfig and the logs")
    parser.add_argument("--verbose", action="store_true", help="Dovetail logs each placement")
    wanted = Wanted(**vars(parser.parse_args(arguments)))
    if wanted.config is not None and not wanted.config.is_file():
        parser.error(f"--config {wanted.config}: no such file")
    return wanted


def generated_nodes(count: int, gpus: int) -> list[Object]:
    """Nodes `gpu-1`, `gpu-2` …, in two zones, with cards of 15,360 MiB in HAMi's register."""
    names = [f"gpu-{number}" for number in range(1, count + 1)]
    zones = [f"zone-{'ab'[number % 2]}" for number in range(count)]
    labels = [{"topology.kubernetes.io/zone": zone, "gpu": "on" if gpus else "off"} for zone in zones]
    return [objects.node(name, gpus, labels=label) for name, label in zip(names, labels, strict=True)]


def make_nodes(plane: ControlPlane, wanted: Wanted) -> None:
    """Create the nodes with `kubectl apply`, so that applying all of examples/demo later does not change its nodes."""
    if wanted.has_demo_nodes:
        plane.kubectl("apply", "-f", str(DEMO_NODES))
        return
    nodes = generated_nodes(wanted.nodes or 2, 4 if wanted.gpus is None else wanted.gpus)
    plane.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))


def replicas(plane: ControlPlane, wanted: Wanted, logs: Path) -> list[Replica]:
    """The processes of `dovetail scheduler`, with the rights of the shipped manifests; each serves the webhook."""
    grant_dovetail(plane.client())
    webhook.grant_webhook(plane.client())
    command: list[str | Path] = [DOVETAIL, "scheduler", "--kubeconfig", plane.kubeconfig("dovetail")]
    command += ["--config", wanted.config] if wanted.config else []
    command += [f"--scheduler-name={name}" for name in SCHEDULER_NAMES]
    command += ["--verbose"] if wanted.verbose else []
    ports = free_ports(wanted.replicas)
    if ports:
        # Each replica is asked, as there is no Service here; the second one has nothing to change. While none answers,
        # pods are created as they are: Dovetail also schedules those without a name.
        plane.client().create(webhook.configuration(ports, host="localhost", failure_policy="Ignore"))
    command += ["--webhook-secret", webhook.SECRET]
    return [
        Replica(f"dovetail-{number}", [*command, "--webhook-listen", f"127.0.0.1:{port}"], logs)
        for number, port in enumerate(ports, 1)
    ]


def look_after(plane: ControlPlane, schedulers: Sequence[Replica]) -> None:
    """Restart schedulers that have ended; raise Failed if a component of the control plane has ended."""
    for process in map(plane.process, COMPONENTS):
        if not process.running():
            raise Failed(f"{process.name} has ended; its log is {process.log}; it said last:\n{process.last_words()}")
    for scheduler in schedulers:
        runs = scheduler.runs
        ending = scheduler.look()
        if ending is not None:
            print(ending, flush=True)
        elif scheduler.runs > max(runs, 1):
            print(f"{scheduler.name} runs again; its log is {scheduler.log}", flush=True)


def wait_until_ready(plane: ControlPlane, schedulers: Sequence[Replica]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while schedulers and not any(scheduler.is_ready() for scheduler in schedulers):
        look_after(plane, schedulers)
        if time.monotonic() > deadline:
            raise Failed(f"Dovetail is not ready after {READY_SECONDS:.0f} s; its log is {schedulers[0].log}")
        time.sleep(0.1)


def to_try(has_demo_nodes: bool, cards: int) -> Sequence[tuple[str, str]]:
    """Five commands and what they show.

    Generated nodes get other commands, because applying all of examples/demo would add its nodes.
    """
    if has_demo_nodes:
        return TO_TRY
    one = ("kubectl apply -f examples/demo/demo-a.yaml", "four pods, packed")
    many = (f"kubectl scale deployment demo-a --replicas={cards * PODS_PER_CARD + 4}", "four more than fit")
    return (one, *TO_TRY[1:3], many, TO_TRY[4])


def describe(plane: ControlPlane, schedulers: Sequence[Replica], home: Home, has_demo_nodes: bool) -> str:
    """A text that describes the cluster and what to try first."""
    nodes = plane.client().list("Node")
    cards = sum(len(json.loads(node["metadata"]["annotations"].get(objects.REGISTER, "[]"))) for node in nodes)
    version = plane.client().ask("GET", "/version")["gitVersion"]
    path = f"{plane.binaries.path('kubectl').parent}:{DOVETAIL.parent}"
    commands = to_try(has_demo_nodes, cards)
    width = max(len(command) for command, _ in commands)
    lines = [
        f"Kubernetes {version} at {plane.url}: {len(nodes)} nodes with {cards} GPUs in all. In another terminal, here:",
        "",
        f"  export KUBECONFIG={home.kubeconfig} PATH={path}:$PATH",
        "",
        *(f"  {command:<{width}}  # {what}" for command, what in commands),
        "",
    ]
    if schedulers:
        pid_file = home.path / f"{schedulers[0].name}.pid"
        lines += [
            f"Dovetail schedules pods with schedulerName {' or '.join(SCHEDULER_NAMES)}, and its webhook prepares pods",
            "with GPUs. It is restarted if it ends:",
            "",
            f"  kill -9 $(cat {pid_file})",
            "",
        ]
        lines += [f"{each.name}: log {each.log}, metrics http://127.0.0.1:{each.port}/metrics" for each in schedulers]
    else:
        lines.append("Dovetail does not run (--replicas 0): pods will wait.")
    lines.append(f"Logs: {home.logs}. Containers are not run: kubectl logs and exec do not work. Ctrl-C ends it all.")
    return "\n".join(lines)


def serve(wanted: Wanted, home: Home) -> None:
    print("Starting a control plane (a few seconds)", flush=True)
    with ControlPlane(options=Options(port=wanted.port, logs=home.logs)) as plane:
        plane.start_controller_manager(RUN_CONTROLLERS)
        pod_groups.install(plane.client())
        make_nodes(plane, wanted)
        shutil.copy2(plane.kubeconfig(), home.kubeconfig)
        with Kubelet(plane.client().access) as kubelet:
            kubelet.start_delay = START_SECONDS
            schedulers = replicas(plane, wanted, home.logs)
            try:
                wait_until_ready(plane, schedulers)
                print(describe(plane, schedulers, home, wanted.has_demo_nodes), flush=True)
                while True:
                    look_after(plane, schedulers)
                    time.sleep(0.2)
            finally:
                for scheduler in schedulers:
                    scheduler.stop()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    wanted = read_arguments()
    # SIGINT is ignored in processes that a script starts in the background
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    home = Home(wanted.home, datetime.now())
    try:
        with home:
            serve(wanted, home)
    except KeyboardInterrupt:
        print(f"\nStopped. The logs are in {home.logs}")
    except (Failed, Missing, InUse) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
