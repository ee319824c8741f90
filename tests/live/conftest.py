"""A real control plane for the tests in this folder: one for the whole session, swept clean for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tools.controlplane.access import grant_dovetail
from tools.controlplane.binaries import ASSETS, Binaries, Missing, find
from tools.controlplane.client import Client
from tools.controlplane.kubelet import Kubelet
from tools.controlplane.plane import ControlPlane
from tools.controlplane.slate import Slate

REQUIRED = "DOVETAIL_REQUIRE_LIVE"  # "1" where a control plane must be there: its absence is a failure
BESIDES = ("kwok", "kube-scheduler", "kube-controller-manager")  # what a test starts for itself


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs the control plane waits seconds for it: `make test-fast` leaves it out."""
    for item in items:
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The programs of a control plane. Where there are none, tests are skipped, or fail if they are required."""
    try:
        return find()
    except Missing as error:
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{REQUIRED}=1, but there is no control plane: {error}")
        pytest.skip(f"no control plane: {error}")


@pytest.fixture(scope="session")
def helm_binaries(binaries: Binaries) -> Binaries:
    """The programs with Helm among them."""
    if not binaries.has("helm"):
        if os.environ.get(REQUIRED) == "1" and not os.environ.get(ASSETS):
            pytest.fail(f"{REQUIRED}=1, but Helm is not built: python -m tools.build --helm")
        pytest.skip(f"there is no helm among the programs of {binaries.origin}: python -m tools.build --helm")
    return binaries


@pytest.fixture(scope="session")
def control_plane(binaries: Binaries) -> Iterator[ControlPlane]:
    """etcd and the API server, with whatever earlier tests left in them; most tests want `plane`."""
    with ControlPlane(binaries) as plane:
        yield plane


@pytest.fixture(scope="session")
def _slate(control_plane: ControlPlane) -> Slate:
    return Slate(control_plane.client())


@pytest.fixture
def plane(control_plane: ControlPlane, _slate: Slate) -> Iterator[ControlPlane]:
    """The control plane with nothing in it: no nodes, no pods, no controllers, no scheduler."""
    yield control_plane
    for name in BESIDES:
        control_plane.stop_component(name, grace=0)
    control_plane.start_api_server()  # if the test stopped it
    _slate.clean()


@pytest.fixture
def api(plane: ControlPlane) -> Client:
    """The admin's client of a clean control plane."""
    return plane.client()


@pytest.fixture
def dovetail_api(plane: ControlPlane, api: Client) -> Client:
    """The client of the user `dovetail`, who may do what deploy/rbac.yaml allows."""
    grant_dovetail(api)
    return plane.client("dovetail")


@pytest.fixture
def kubelet(api: Client) -> Iterator[Kubelet]:
    """A stand-in kubelet for every node there is and will be."""
    with Kubelet(api.access) as kubelet:
        yield kubelet
