"""`make conformance`: Kubernetes' end-to-end specs with kube-scheduler and with Dovetail in its place, side by side.

Four nodes in two zones (one and three), a stand-in kubelet and the real controllers; Dovetail has the rights of
deploy/rbac.yaml and no others. `tools/e2e/specs.txt` lists the specs that hold with kube-scheduler here: those that
need running containers cannot. The table goes to standard output, everything else to standard error and to a folder.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tools.controlplane import objects
from tools.controlplane.access import grant_dovetail
from tools.controlplane.building import CannotBuild, build
from tools.controlplane.client import Object
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import CONTROLLERS, ControlPlane
from tools.controlplane.process import Failed, Process
from tools.controlplane.recipes import E2E

SPECS = Path(__file__).parent / "e2e" / "specs.txt"
PREEMPTION = "preemption: "  # prefix of specs that Dovetail cannot pass until it evicts pods
SCHEDULERS = ("kube-scheduler", "dovetail")
ZONES = ("a", "b", "b", "b")
MORE_CONTROLLERS = (
    "serviceaccount root-ca-certificate-publisher replicationcontroller endpoints endpointslice ttl-after-finished "
    "pod-garbage-collector persistentvolume-binder persistentvolumeclaim-protection"
)
SECONDS = 2 * 3600.0  # for one part; specs have their own, shorter limits

Results = dict[str, bool]  # spec -> whether it passed


def listed() -> tuple[list[str], frozenset[str]]:
    """The specs, and those of them that need preemption."""
    lines = [line.strip() for line in SPECS.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    return [line.removeprefix(PREEMPTION) for line in lines], frozenset(
        line.removeprefix(PREEMPTION) for line in lines if line.startswith(PREEMPTION)
    )


def parts_of(specs: Sequence[str]) -> list[list[list[str]]]:
    """The parts that run one after another; each is a list of groups that run in parallel.

    sig-apps specs are grouped by their subject. sig-scheduling specs fill and taint nodes, so each must run alone.
    """
    about: dict[str, list[str]] = {}
    for spec in specs:
        if not spec.startswith("[sig-scheduling]"):
            about.setdefault(" ".join(spec.split()[:2]), []).append(spec)
    alone = [spec for spec in specs if spec.startswith("[sig-scheduling]")]
    return [part for part in (list(about.values()), [alone] if alone else []) if part]


@contextmanager
def cluster(scheduler: str) -> Iterator[ControlPlane]:
    with ControlPlane() as plane, ExitStack() as rest:
        keys = [f"--root-ca-file={plane.authority}", f"--service-account-private-key-file={plane.key}"]
        plane.start_controller_manager(f"{CONTROLLERS} {MORE_CONTROLLERS}", keys)
        for number, zone in enumerate(ZONES):
            plane.client().create(machine(number, zone))
        kubelet = Kubelet(plane.client().access)
        kubelet.advertises = True
        rest.enter_context(kubelet)
        if scheduler == "dovetail":
            rest.callback(start_dovetail(plane).stop)
        else:
            plane.start_scheduler()
        yield plane


def machine(number: int, zone: str) -> Object:
    labels = {"topology.kubernetes.io/zone": zone, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    made = objects.node(f"node-{number}", labels=labels)
    made["status"]["addresses"] = [{"type": "InternalIP", "address": f"10.1.0.{number + 1}"}]
    return made


def start_dovetail(plane: ControlPlane) -> Process:
    grant_dovetail(plane.client())
    command: list[str | Path] = [Path(sys.executable).parent / "dovetail", "scheduler", "--listen", ""]
    command += ["--kubeconfig", plane.kubeconfig("dovetail"), "--scheduler-name", "default-scheduler"]
    process = Process("dovetail", [*command, "--identity", "conformance"], plane.path / "dovetail.log")
    process.wait_until(lambda: "ready: " in process.last_words(200), 120.0)
    return process


def run(scheduler: str, specs: Sequence[str], folder: Path) -> Results:
    program = build(E2E) / "e2e.test"
    found: Results = {}
    with cluster(scheduler) as plane:
        for number, part in enumerate(parts_of(specs)):
            running = []
            for at, some in enumerate(part):
                report = folder / f"{scheduler}-{number}-{at}"
                report.mkdir(parents=True)
                running.append((start(program, plane, some, report), report))
            for process, report in running:
                wait(process)
                found |= results(report)
                say(f"{scheduler}: {sum(found.values())} of {len(found)} hold so far ({report})")
        for log in plane.path.glob("*.log"):
            (folder / f"{scheduler}-{log.name}").write_bytes(log.read_bytes())
    return found


def start(program: Path, plane: ControlPlane, specs: Sequence[str], report: Path) -> Process:
    names = "|".join(re.escape(spec).replace("\\ ", " ") for spec in specs)
    flags = {
        "kubeconfig": plane.kubeconfig(),
        "provider": "skeleton",
        "ginkgo.focus": f"(?:{names})$",
        "ginkgo.seed": "1",  # the same order for both schedulers
        "ginkgo.timeout": f"{SECONDS:.0f}s",
        "ginkgo.no-color": "true",
        "report-dir": report,
        "allowed-not-ready-nodes": "-1",
        "disable-log-dump": "true",
        "dump-logs-on-failure": "false",
    }
    return Process("e2e.test", [program, *(f"--{key}={value}" for key, value in flags.items())], report / "log.txt")


def wait(process: Process) -> None:
    deadline = time.monotonic() + SECONDS
    while process.running():
        if time.monotonic() > deadline:
            process.stop()
            raise Failed(f"e2e.test is not done after {SECONDS:.0f} s; it said last:\n{process.last_words()}")
        time.sleep(0.5)


def results(report: Path) -> Results:
    """The results of the specs that ran, from the JUnit files."""
    found: Results = {}
    for path in report.glob("junit*.xml"):
        for case in ET.parse(path).iter("testcase"):
            name, status = case.get("name", ""), case.get("status", "")
            if name.startswith("[It] ") and status != "skipped":
                found[name.removeprefix("[It] ")] = status == "passed"
    return found


def table(specs: Sequence[str], found: Mapping[str, Results], preemption: frozenset[str]) -> str:
    """A Markdown table: a row per spec of sig-scheduling or that fails, and sums."""
    lines = [f"| spec | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]

    def word(scheduler: str, spec: str) -> str:
        held = found[scheduler].get(spec)
        if held is None:
            return "not run: needs preemption" if spec in preemption else "not run"
        return "holds" if held else "fails"

    for spec in specs:
        if spec.startswith("[sig-scheduling]") or any(not one.get(spec, False) for one in found.values()):
            name = spec.removeprefix("[sig-scheduling] ").replace("|", "\\|")
            lines.append(f"| {name} | {' | '.join(word(scheduler, spec) for scheduler in found)} |")
    for group in ("[sig-scheduling]", "[sig-apps]"):
        own = [spec for spec in specs if spec.startswith(group)]
        sums = (f"{sum(one.get(spec, False) for spec in own)} of {len(own)}" for one in found.values())
        lines.append(f"| **{group.strip('[]')}** | {' | '.join(sums)} |")
    return "\n".join(lines)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", choices=SCHEDULERS, action="append", help="only this one (default: both)")
    parser.add_argument("--only", default="", metavar="TEXT", help="specs whose name contains this")
    parser.add_argument("--preemption", action="store_true", help="those that need preemption with Dovetail as well")
    options = parser.parse_args()
    specs, preemption = listed()
    specs = [spec for spec in specs if options.only in spec]
    folder = Path(tempfile.mkdtemp(prefix="dovetail-conformance-"))
    say(f"Logs and reports: {folder}")
    found: dict[str, Results] = {}
    for scheduler in options.scheduler or SCHEDULERS:
        skipped = preemption if scheduler == "dovetail" and not options.preemption else frozenset()
        found[scheduler] = run(scheduler, [spec for spec in specs if spec not in skipped], folder)
    print(table(specs, found, preemption))
    wanted = [spec for spec in specs if spec not in preemption]
    return 0 if all(one.get(spec, False) for one in found.values() for spec in wanted) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, CannotBuild) as error:
        sys.exit(str(error))
