"""The control plane itself is what the other tests take it for."""

from __future__ import annotations

from tools.controlplane.client import Client
from tools.controlplane.plane import ControlPlane


def test_who_has_no_role_may_do_nothing(plane: ControlPlane, api: Client) -> None:
    assert api.request("GET", "/api/v1/nodes")[0] == 200
    assert plane.client("nobody").request("GET", "/api/v1/nodes")[0] == 403
    assert plane.client("dovetail").request("GET", "/api/v1/nodes")[0] == 403
    assert plane.client(None).request("GET", "/api/v1/nodes")[0] == 403


def test_the_user_dovetail_has_its_roles(dovetail_api: Client) -> None:
    assert dovetail_api.request("GET", "/api/v1/nodes")[0] == 200
