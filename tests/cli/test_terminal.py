"""No text of other people controls a terminal: escapes in any field of any object reach neither stdout nor stderr."""

from __future__ import annotations

import ast
import copy
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.cli.output import encoding
from dovetail.cli.output.logs import Logger
from dovetail.cli.output.progress import progress
from dovetail.kube.live.words import cut
from dovetail.kube.objects.problems import printable
from dovetail.model.visible import visible, visible_lines
from dovetail.sim.plot_svg import _text
from dovetail.sim.report.markup import tag
from tests.cli.conftest import Run

# A window title, 8-bit CSI, our own red, backwards text, a return, a backspace, a line of its own, DEL, separators.
ESCAPES = "\x1b]0;PWN\x07\x9b31mPWN\x1b[31mPWN\u202e\u2066\u200f\r\x08\nPWN\x7f\x85\u2028PWN\ufeff"
OURS = re.compile(r"\x1b\[(0|1|2|3[0-7]|9[0-7])m(?!PWN)")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

CARD = {
    "id": "GPU-1",
    "count": 10,
    "devmem": 16000,
    "devcore": 100,
    "type": "NVIDIA-Tesla T4",
    "numa": 0,
    "health": True,
}
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "gpu-1",
        "labels": {"zone": "a", "kubernetes.io/hostname": "gpu-1"},
        "annotations": {"hami.io/node-nvidia-register": json.dumps([CARD])},
    },
    "spec": {"taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "example.com/dongle": "1"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fine"}],
        "images": [{"names": ["registry/app:1"], "sizeBytes": 1000}],
    },
}
CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "registry/app:1",
    "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
    "env": [{"name": "A", "value": "b"}],
    "resources": {
        "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "cpu": "1", "example.com/dongle": "1"}
    },
}
TERM = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname", "namespaces": ["ml"]}
SPEC: dict[str, Any] = {
    "schedulerName": "dovetail",
    "priorityClassName": "high",
    "containers": [CONTAINER],
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
}
ANNOTATIONS = {
    "hami.io/gpu-scheduler-policy": "spread",
    "nvidia.com/use-gputype": "T4",
    "nvidia.com/use-gpuuuid": "GPU-1",
}
META = {"name": "web", "namespace": "ml", "labels": {"app": "web"}, "annotations": ANNOTATIONS}
TEMPLATE = {"metadata": {"labels": {"app": "web", "scheduling.x-k8s.io/pod-group": "gang"}}, "spec": SPEC}
OBJECTS: list[dict[str, Any]] = [
    NODE,
    {"apiVersion": "v1", "kind": "Pod", "metadata": META, "spec": SPEC},
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "many", "namespace": "ml"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE},
    },
    {
        "apiVersion": "example.com/v1",
        "kind": "Training",
        "metadata": {"name": "own-kind", "namespace": "ml"},
        "spec": {"template": {"spec": SPEC}},
    },
    {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "ml"},
        "spec": {"minMember": 3},
    },
    {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "quota", "namespace": "ml"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": "100", "requests.example.com/dongle": "1"}},
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "ml"},
        "spec": {
            "storageClassName": "disk",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    },
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5},
]

Step = str | int


def leaves(value: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], bool]]:
    """The path of every text below, and of every key (True)."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield (*path, key), True
            yield from leaves(below, (*path, key))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from leaves(below, (*path, number))
    elif isinstance(value, str):
        yield path, False


def with_escapes(objects: list[dict[str, Any]], path: tuple[Step, ...], is_key: bool) -> list[dict[str, Any]]:
    """The objects with the escapes behind one text or one key."""
    changed = copy.deepcopy(objects)
    holder: Any = changed
    for step in path[:-1]:
        holder = holder[step]
    last = path[-1]
    if is_key:
        holder[f"{last}{ESCAPES}"] = holder.pop(last)
    elif last == "hami.io/node-nvidia-register":  # a text of JSON: in the card's id and model
        card = {**CARD, "id": f"GPU-1{ESCAPES}", "type": f"NVIDIA-T4{ESCAPES}"}
        holder[last] = json.dumps([card])
    else:
        holder[last] += ESCAPES
    return changed


def check(*outputs: str) -> None:
    for text in outputs:
        assert "\nPWN" not in text, repr(text)
        found = CONTROL.search(OURS.sub("", text))
        assert found is None, repr(text[max(0, found.start() - 60) : found.end() + 60])


PLACES = list(leaves(OBJECTS))


@pytest.mark.parametrize("part", range(8))
def test_escapes_in_any_field_stay_text(run: Run, part: int) -> None:
    """Every text and every key of nodes, pods, workloads, groups, quotas and claims, one after the other."""
    assert len(PLACES) > 250
    for number, (path, is_key) in list(enumerate(PLACES))[part::8]:
        objects = with_escapes(OBJECTS, path, is_key)
        stdin = yaml.safe_dump_all(objects) if number % 2 else "\n".join(map(json.dumps, objects))
        output = ("wide", "json", "yaml", "table")[number // 2 % 4]
        for command in (("plan",), ("explain", "web", "-n", "ml")):
            done = run(*command, "-f", "-", "-o", output, "--color", "always", "--engine", "interpreted", stdin=stdin)
            check(done.stdout, done.stderr)
            assert done.exit_code in (0, 2, 3)


def test_a_taint_with_escapes_is_readable(run: Run) -> None:
    node = copy.deepcopy(NODE)
    node["spec"]["taints"][0]["value"] = "ml\x1b]0;title\x07"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "c"}]}}
    done = run("plan", "-f", "-", stdin=yaml.safe_dump_all([node, pod]))
    assert r"taint team=ml\x1b]0;title\x07:NoSchedule not tolerated" in done.stdout


def test_free_text_keeps_its_line_breaks_and_tabs(run: Run) -> None:
    """A register written as JSON of several lines."""
    node = copy.deepcopy(NODE)
    node["metadata"]["annotations"]["hami.io/node-nvidia-register"] = json.dumps([CARD], indent="\t")
    done = run("plan", "-f", "-", "-o", "wide", stdin=yaml.safe_dump_all([node, {**OBJECTS[1], "spec": {**SPEC}}]))
    assert "GPU-1" in done.stdout


TRACES = {
    "nodes.csv": "name,cpu_milli,memory_mib,gpus,model\nm,64000,65536,8,T4\n",
    "jobs.csv": "name,gpus,models,tenant\nj,1,T4,team\nk,1,T4,team\n",
}


@pytest.mark.parametrize("command", ["replay", "compare"])
@pytest.mark.parametrize("file", TRACES)
def test_escapes_in_traces_stay_text(run: Run, tmp_path: Path, command: str, file: str) -> None:
    """In every cell and column name, one after the other."""
    texts = {name: [line.split(",") for line in text.splitlines()] for name, text in TRACES.items()}
    cells = [(row, column) for row, line in enumerate(texts[file]) for column in range(len(line))]
    for number, (row, column) in enumerate(cells):
        changed = copy.deepcopy(texts)
        changed[file][row][column] += ESCAPES.replace("\n", "")
        for name, lines in changed.items():
            (tmp_path / name).write_text("\n".join(map(",".join, lines)), encoding="utf-8", newline="")
        files = (
            "--nodes",
            tmp_path / "nodes.csv",
            "--pods" if command == "replay" else "--trace",
            tmp_path / "jobs.csv",
        )
        bad = ("--skip-bad",) if number % 2 else ()
        output = ("table", "json", "csv")[number % 3]
        policy = ("--policy", "best-fit", "-o", output, "--engine", "interpreted", "--color", "always")
        seeds = ("--no-cache", "--seeds", "1") if command == "compare" else ()
        done = run(command, *files, *bad, *policy, *seeds)
        check(done.stdout, done.stderr)


def test_escapes_in_names_of_files_stay_text(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / f"x{ESCAPES.replace('/', '')}"
    folder.mkdir()
    for name, text in TRACES.items():
        (folder / f"{ESCAPES}{name}").write_text(text)
    (folder / "broken.yaml").write_text("a: [")
    nodes, jobs = (folder / f"{ESCAPES}{name}" for name in TRACES)
    report, plot = folder / "r.html", folder / "p.svg"
    common = ("--policy", "best-fit", "--engine", "interpreted", "--color", "always")
    for command in (
        ("plan", "-f", folder),
        ("plan", "-f", folder / "none.yaml", "--config", folder / "none"),
        ("replay", "--nodes", nodes, "--pods", jobs, "--report", report, "--plot", plot, *common),
        ("replay", "--nodes", nodes, "--pods", jobs, "-o", "json", *common),
        ("compare", "--nodes", nodes, "--trace", jobs, "--no-cache", "--seeds", "1", *common),
        ("replay", "--nodes", folder, "--pods", folder),
        ("generate", "-o", folder, "--jobs", "3"),
    ):
        done = run(*command)
        check(done.stdout, done.stderr)
    check(plot.read_text(encoding="utf-8"))
    assert CONTROL.search(report.read_text(encoding="utf-8")) is None  # a line break is a space there


@pytest.mark.parametrize(
    "arguments", [[ESCAPES], ["plan", f"--{ESCAPES}"], ["plan", "-o", ESCAPES, "-f", "x"], ["demo", ESCAPES]]
)
def test_escapes_in_arguments_stay_text(arguments: list[str]) -> None:
    """Those that click complains about, too."""
    done = subprocess.run([sys.executable, "-m", "dovetail", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    check(done.stdout, done.stderr)


def test_the_log_events_and_pages_show_escapes_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        Logger(as_json=as_json)(f"a node{ESCAPES}", pod=ESCAPES)
    check(capsys.readouterr().err.rstrip("\n"), cut(f"0/1 nodes: {ESCAPES}"), printable(ESCAPES))
    check(tag("p", ESCAPES.replace("\n", ""), title=ESCAPES.replace("\n", "")), _text(0, 0, ESCAPES, "red"))


@pytest.mark.parametrize("form", encoding.FORMATS)
def test_json_and_yaml_escape_and_lose_nothing(form: str) -> None:
    document = {"a": ESCAPES, ESCAPES: ["grün", "\U0001f680"]}
    text = encoding.encode(document, form)
    check(text)
    assert (json.loads if form == "json" else yaml.safe_load)(text) == document


def test_progress_shows_escapes_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress(ESCAPES, patience=0.0):
        for _ in range(2_000):
            if "PWN" in terminal.getvalue():
                break
            time.sleep(0.01)
    assert "PWN" in terminal.getvalue()
    check(re.sub(r"\r(?!\x08)|\x1b\[K", "", terminal.getvalue()))


def test_what_is_visible() -> None:
    assert visible("a\x1b[31m\tb\n\x9b\u202e") == r"a\x1b[31m\tb\n\x9b\u202e"
    assert visible_lines("a\tb\nc\r") == "a\tb\nc\\r"
    for text in ("web-0", "grün × 4", "日本語", "\U0001f680", "a\u00a0b"):
        assert visible(text) == visible_lines(text) == text


CLI = Path(encoding.__file__).parent.parent


@pytest.mark.parametrize("path", sorted(CLI.rglob("*.py")), ids=lambda path: path.name)
def test_everything_is_printed_in_one_place(path: Path) -> None:
    """cli/output/terminal.py; progress.py and logs.py clean what they print, which is tested above."""
    if path.name in ("terminal.py", "progress.py", "logs.py"):
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            printing = called in ("print", "click.echo", "click.secho", "traceback.print_exception")
            printing = printing or called.endswith(("stdout.write", "stderr.write"))
            assert not printing, f"line {node.lineno}: {called}"
