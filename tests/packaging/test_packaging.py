"""What people install: the wheel, the sdist and the image have everything that dovetail needs, and nothing else."""

from __future__ import annotations

import re
import shutil
import stat
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from dovetail import __version__
from tests.packaging.installing import (
    ROOT,
    Image,
    build,
    clean_env,
    closure,
    environment,
    link_packages,
    needs,
    run,
)

pytestmark = pytest.mark.slow
DEMO = "examples/demo"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def declared(*extras: str) -> set[str]:
    """Names of what pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = [each for extra in extras for each in project["optional-dependencies"][extra]]
    return set(needs([*project["dependencies"], *optional]))


def install(wheel: Path, room: Path, *extras: str) -> Path:
    """A virtual environment with the wheel and its declared dependencies; its bin folder."""
    bin_folder = environment(room / "venv", link_packages(closure(declared(*extras)), room / "packages"))
    run(
        bin_folder / "python", "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel, cwd=room, env=clean_env()
    )
    return bin_folder


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("plain"))


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    package = ROOT / "src" / "dovetail"
    sources = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {f"dovetail/{path.relative_to(package)}" for path in sources}
    expected |= {f"dovetail/{DEMO}/{path.name}" for path in (ROOT / DEMO).iterdir()}
    files = {name for name in contents(wheel) if ".dist-info/" not in name}
    assert files == expected
    assert "dovetail/py.typed" in files


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build(ROOT, tmp_path / "sdist", "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    again = build(source, tmp_path / "again", "wheel")
    assert again.name == wheel.name
    assert contents(again) == contents(wheel)


def test_extras_hold_what_their_users_need() -> None:
    assert declared() == {"click", "msgspec", "numpy", "numba", "pyyaml"}
    assert declared("live") - declared() == {"aiohttp", "cryptography", "httptools"}
    assert declared("plot") - declared() == {"matplotlib"}
    assert declared("top") - declared() == {"textual"}
    assert declared("tracing") - declared() == {"opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk"}
    assert declared("dask") - declared() == {"distributed"}
    assert declared("ray") - declared() == {"ray"}


def test_the_installed_commands_work(installed: Path, tmp_path: Path) -> None:
    """With the declared dependencies alone, in a folder that is not the source tree."""
    env = clean_env(DOVETAIL_CACHE_DIR=tmp_path / "cache")
    dovetail = installed / "dovetail"
    demo = run(dovetail, "demo", cwd=tmp_path, env=env)
    assert all(f"nodes used: {count} of 2" in demo for count in (1, 2))
    files = ("-f", ROOT / DEMO / "cluster.yaml", "-f", ROOT / DEMO / "demo-a.yaml")
    assert "demo-a-" in run(dovetail, "plan", *files, cwd=tmp_path, env=env)
    assert "demo-a" in run(dovetail, "explain", "demo-a", *files, cwd=tmp_path, env=env)
    for command in ("scheduler", "compare", "replay", "generate"):
        assert run(dovetail, command, "--help", cwd=tmp_path, env=env).startswith("Usage: dovetail")
    report = tmp_path / "report.html"
    study = ("--jobs", "60", "--cluster", "4xT4:4", "--seeds", "1-2", "--engine", "interpreted", "--report", report)
    run(dovetail, "compare", "--policy", "best-fit,random", *study, cwd=tmp_path, env=env)
    assert "<style>" in report.read_text(encoding="utf-8")


def test_version_and_python_dash_m(installed: Path, tmp_path: Path) -> None:
    for command in ((installed / "dovetail",), (installed / "python", "-m", "dovetail")):
        assert run(*command, "--version", cwd=tmp_path, env=clean_env()) == f"dovetail, version {__version__}\n"


def test_without_the_extra_the_scheduler_names_it(installed: Path, tmp_path: Path) -> None:
    said = run(installed / "dovetail", "scheduler", cwd=tmp_path, env=clean_env(), code=2)
    assert "aiohttp is not installed: pip install 'dovetail[live]'" in said


def test_with_the_extra_the_scheduler_starts(wheel: Path, tmp_path: Path) -> None:
    bin_folder = install(wheel, tmp_path, "live")
    command = (bin_folder / "dovetail", "scheduler", "--kubeconfig", tmp_path / "none")
    said = run(*command, cwd=tmp_path, env=clean_env(), code=2)
    assert str(tmp_path / "none") in said
    assert "aiohttp" not in said


def test_an_editable_install_runs_the_sources_beside_it(tmp_path: Path) -> None:
    source = tmp_path / "clone"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / DEMO, source / DEMO)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source)
    packages = link_packages(closure({*declared(), "hatchling"}), tmp_path / "packages")
    bin_folder = environment(tmp_path / "venv", packages)
    pip = (bin_folder / "python", "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation")
    run(*pip, "-e", source, cwd=tmp_path, env=clean_env())
    (source / "src" / "dovetail" / "__init__.py").write_text('__version__ = "0.1.0+edited"\n', encoding="utf-8")
    assert "0.1.0+edited" in run(bin_folder / "dovetail", "--version", cwd=tmp_path, env=clean_env())
    assert "nodes used: 1 of 2" in run(bin_folder / "dovetail", "demo", "A", cwd=tmp_path, env=clean_env())


def test_the_image_has_all_that_its_build_reads(tmp_path: Path) -> None:
    """The Dockerfile's steps in empty folders; the index is a folder of links to what dovetail[live] declares."""
    image = Image(ROOT / "Dockerfile", tmp_path)
    packages = link_packages(closure({*declared("live"), "hatchling"}), tmp_path / "packages")
    image.carry_out(clean_env(PIP_NO_INDEX="1", PIP_NO_DEPS="1", PYTHONPATH=str(packages)))
    said = dict(image.stage(1))
    (entry,) = tomllib.loads(f"e = {image.here(said['ENTRYPOINT'])}")["e"]
    env = clean_env(PYTHONPATH=packages) | image.variables(1)
    for command in (rest for word, rest in image.stage(1) if word == "RUN"):
        # Kernels of one profile instead of all: each takes seconds to compile.
        run("sh", "-ec", re.sub(r"(warm \S+) .*", r"\1", image.here(command)), cwd=tmp_path, env=env)
    kernels = tmp_path / "opt" / "dovetail" / "kernels"
    assert list(kernels.rglob("*.nbi"))
    # Read by user 65532, written by root alone.
    assert {stat.S_IMODE(path.stat().st_mode) for path in kernels.rglob("*")} == {0o755, 0o644}
    assert __version__ in run(entry, "--version", cwd=tmp_path, env=env)
    assert "nodes used: 1 of 2" in run(entry, "demo", "A", cwd=tmp_path, env=env)
    assert said["COPY"] == "--from=build /opt/dovetail /opt/dovetail"
    # A new pod: an empty cache of its own, and the kernels of the image. They are loaded: no other code appears.
    for folder in (kernels, *kernels.rglob("*/")):
        folder.chmod(0o555)
    pod = env | {"DOVETAIL_CACHE_DIR": str(tmp_path / "cache")}
    run(entry, "warm", "binpack:binpack", cwd=tmp_path, env=pod)
    loaded = compiled_code(tmp_path / "cache")
    assert loaded
    assert loaded <= compiled_code(kernels)


def compiled_code(folder: Path) -> set[tuple[str, bytes]]:
    """numba's files of machine code: name and content."""
    return {(path.name, path.read_bytes()) for path in folder.rglob("*.nbc")}


def test_the_builder_gets_what_the_dockerfile_copies_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    copied = [
        word
        for key, rest in Image(ROOT / "Dockerfile", Path("/nowhere")).stage(0)
        if key == "COPY"
        for word in rest.split()[:-1]
    ]
    assert rules[0] == "*"
    assert sorted(rule[1:] for rule in rules if rule.startswith("!")) == sorted(copied)
    assert rules[-1] == "**/__pycache__"


def test_the_image_runs_as_the_user_of_the_deployment() -> None:
    stage = dict(Image(ROOT / "Dockerfile", Path("/nowhere")).stage(1))
    (deployment,) = [
        item
        for item in yaml.safe_load_all((ROOT / "deploy" / "deployment.yaml").read_text(encoding="utf-8"))
        if item["kind"] == "Deployment"
    ]
    spec = deployment["spec"]["template"]["spec"]
    assert stage["USER"] == str(spec["securityContext"]["runAsUser"])
    assert "command" not in spec["containers"][0]  # the image's entry point is `dovetail`


def pins(name: str) -> dict[str, set[str]]:
    """`name==version` -> the hashes of its files."""
    text = re.sub(r"(?m)^ *#.*\n", "", (ROOT / name).read_text(encoding="utf-8"))
    return {
        pin.split()[0]: set(re.findall(r"sha256:[0-9a-f]{64}", pin)) for pin in re.split(r"\n(?=[a-z])", text.strip())
    }


@pytest.mark.parametrize(
    ("name", "roots"), [("deploy/requirements-live.txt", {"live"}), ("deploy/requirements-build.txt", set())]
)
def test_the_image_installs_what_the_tests_run_with_by_hash(name: str, roots: set[str]) -> None:
    tested, installed = pins("requirements.txt"), pins(name)
    assert "://" not in (ROOT / name).read_text(encoding="utf-8")
    for pin, hashes in installed.items():
        assert hashes, pin
        assert hashes == tested[pin]
    wanted = closure(declared(*roots) if roots else {"hatchling"})
    assert {pin.partition("==")[0] for pin in installed} == wanted


def test_the_dockerfile_installs_nothing_without_a_hash_and_lets_the_base_be_pinned() -> None:
    image = Image(ROOT / "Dockerfile", Path("/nowhere"))
    assert [line for line in image.lines if line.startswith(("ARG", "FROM"))] == [
        "ARG BASE=python:3.11-slim",
        "FROM ${BASE} AS build",
        "FROM ${BASE}",
        "ARG VERSION=dev",
        "ARG REVISION=unknown",
    ]
    assert image.variables(0)["PIP_REQUIRE_HASHES"] == "1"
    installing = [rest for number in (0, 1) for word, rest in image.stage(number) if "pip install" in rest]
    assert len(installing) == 3
    for command in installing:
        assert " -r deploy/requirements-" in command or "--no-deps --no-index /src/dist/dovetail-" in command
        assert ("PIP_REQUIRE_HASHES=0" in command) is ("--no-index" in command)


def test_pip_refuses_a_package_that_is_not_the_tested_one(tmp_path: Path) -> None:
    """A mirror that serves another click under the same name and version."""
    pin = next(pin for pin in pins("deploy/requirements-live.txt") if pin.startswith("click=="))
    name, _, version = pin.partition("==")
    with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("click/__init__.py", "print('not click')")
        wheel.writestr(
            f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{name}-{version}.dist-info/RECORD", "")
    text = (ROOT / "deploy/requirements-live.txt").read_text(encoding="utf-8")
    (one,) = re.findall(rf"(?ms)^{re.escape(pin)} .*?(?=^\S|\Z)", text)
    (tmp_path / "one.txt").write_text(one, encoding="utf-8")
    bin_folder = environment(tmp_path / "venv", tmp_path)
    pip = (bin_folder / "python", "-m", "pip", "install", "--no-index", "--find-links", tmp_path, "--require-hashes")
    said = run(*pip, "-r", tmp_path / "one.txt", cwd=tmp_path, env=clean_env(), code=1)
    assert "DO NOT MATCH THE HASHES" in said
