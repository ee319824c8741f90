"""Where the programs of the control plane come from, and what is said when there are none. Builds nothing real."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.controlplane import binaries, building
from tools.controlplane.recipes import ETCD, FLAGS, SERIES, Recipe, kubernetes

MODULE = "module example.com/tiny\n\ngo 1.21\n"
PROGRAM = "package main\n\nfunc main() { println(42) }\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in (binaries.ASSETS, binaries.CHOICE):
        monkeypatch.delenv(name, raising=False)


def tiny(folder: Path) -> Recipe:
    folder.mkdir()
    (folder / "go.mod").write_text(MODULE + "// tiny v1.0.0\n")
    (folder / "go.sum").touch()
    (folder / "main.go").write_text(PROGRAM)
    return Recipe("tiny", folder, "// tiny", (("tiny", "example.com/tiny"),))


def make_assets(folder: Path, *programs: str) -> Path:
    folder.mkdir()
    for program in programs:
        (folder / program).touch(mode=0o755)
    return folder


def test_assets_are_used_if_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_assets(tmp_path / "assets", "etcd", "kube-apiserver", "kubectl", "kube-scheduler")
    monkeypatch.setenv(binaries.ASSETS, str(folder))
    found = binaries.find()
    assert found.path("etcd") == folder / "etcd"
    assert found.has("kube-scheduler")
    with pytest.raises(binaries.Missing, match="kube-controller-manager is not among the programs of KUBEBUILDER"):
        found.path("kube-controller-manager")


def test_assets_that_are_not_complete_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(binaries.ASSETS, str(make_assets(tmp_path / "assets", "etcd")))
    with pytest.raises(binaries.Missing, match="there is no kube-apiserver and no kubectl"):
        binaries.find()


def test_without_go_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(binaries.Missing, match=r"Go is not installed.*KUBEBUILDER_ASSETS"):
        binaries.find()


def test_what_is_not_built_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "go_version", lambda folder: "go1.26.0")
    with pytest.raises(binaries.Missing, match=r"kubernetes v1\.36\.4 is not built yet: run `make controlplane`"):
        binaries.find()


@pytest.mark.parametrize("series", SERIES)
def test_a_series_is_built_from_its_own_patch_version(series: str) -> None:
    recipe = kubernetes(series)
    assert recipe.version.startswith(f"v{series}.")
    assert f"gitVersion={recipe.version}" in recipe.link_flags


def test_an_unknown_series_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no recipe for Kubernetes 1\.1; there are 1\.36, 1\.32"):
        kubernetes("1.1")


def test_modules_are_pinned_and_name_no_host() -> None:
    for recipe in [*map(kubernetes, SERIES), ETCD]:
        for name in ("go.mod", "go.sum"):
            text = (recipe.folder / name).read_text()
            assert text
            assert "://" not in text


def test_the_key_follows_what_goes_in(tmp_path: Path) -> None:
    recipe = tiny(tmp_path / "tiny")
    keys = {recipe.key("go1.26.0"), recipe.key("go1.26.1")}
    (recipe.folder / "go.sum").write_text("changed")
    keys.add(recipe.key("go1.26.0"))
    assert len(keys) == 3
    assert "-trimpath" in FLAGS  # or the folder of the checkout would be in the programs


def needs_go() -> None:
    try:
        building.go_version(Path.cwd())
    except building.CannotBuild as error:
        pytest.skip(str(error))


def test_a_build_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_go()
    recipe = tiny(tmp_path / "tiny")
    home = building.build(recipe)
    assert [path.name for path in home.iterdir()] == ["tiny"]
    assert "Building tiny v1.0.0 with go1" in capsys.readouterr().err
    assert building.build(recipe) == home
    assert capsys.readouterr().err == ""


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    needs_go()
    recipe = tiny(tmp_path / "tiny")
    (recipe.folder / "main.go").write_text("package main\n\nfunc main() { nonsense() }\n")
    with pytest.raises(building.CannotBuild, match="undefined: nonsense"):
        building.build(recipe)
    assert [path.name for path in (tmp_path / "cache" / "dovetail" / "controlplane").iterdir()] == [".tiny.lock"]


def test_programs_that_others_could_replace_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(binaries.Missing, match=r"are not run: other users may write to .*/cache \(mode 0777\)"):
        binaries.find()
