"""Exec plugins: programs that print credentials (client.authentication.k8s.io). Starts processes, opens no sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from dovetail.kube.api.kubeconfig import Connection, Exec, KubeconfigError
from dovetail.kube.objects.problems import printable

LONGEST_RUN = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Issued:
    """The credentials that a plugin printed."""

    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    expires: datetime | None = None  # None = until the server answers 401


class _Answer(msgspec.Struct, rename="camel", frozen=True):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _Credential(msgspec.Struct, rename="camel", frozen=True):
    api_version: str
    kind: str
    status: _Answer | None = None


_CREDENTIAL = msgspec.json.Decoder(_Credential)


async def issue(connection: Connection, environ: Mapping[str, str]) -> Issued:
    """Run the connection's plugin once."""
    plugin = connection.plugin
    assert plugin is not None
    output = await _run(connection, plugin, environ)
    return _read(output, plugin, f"{connection.source}: exec plugin {plugin.command}")


async def _run(connection: Connection, plugin: Exec, environ: Mapping[str, str]) -> bytes:
    where = f"{connection.source}: exec plugin {plugin.command}"
    variables = {**environ, **{each.name: each.value for each in plugin.env or ()}}
    variables["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(_told(connection, plugin)).decode()
    command = plugin.command
    if "/" in command and connection.plugin_folder is not None:
        command = str(connection.plugin_folder / command)
    try:
        process = await asyncio.create_subprocess_exec(
            command,
            *(plugin.args or ()),
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        hint = f"; {printable(plugin.install_hint, 600)}" if plugin.install_hint else "; install it or correct its path"
        raise KubeconfigError(f"{where}: cannot be started: {error.strerror}{hint}") from None
    try:
        output, complaint = await asyncio.wait_for(process.communicate(), LONGEST_RUN)
    except (TimeoutError, asyncio.CancelledError) as error:
        process.kill()
        await process.wait()
        if isinstance(error, asyncio.CancelledError):
            raise
        raise KubeconfigError(
            f"{where}: did not answer within {LONGEST_RUN:.0f} s; run it by hand and see why"
        ) from None
    if process.returncode != 0:
        said = printable(complaint.decode(errors="replace").strip()[-400:], 400) or "it said nothing on stderr"
        raise KubeconfigError(f"{where}: failed with exit code {process.returncode}: {said}")
    return output


def _told(connection: Connection, plugin: Exec) -> dict[str, Any]:
    """KUBERNETES_EXEC_INFO: the facts that the plugin may have."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster: dict[str, Any] = {"server": connection.server}
        if connection.insecure:
            cluster["insecure-skip-tls-verify"] = True
        if connection.server_name:
            cluster["tls-server-name"] = connection.server_name
        if connection.proxy:
            cluster["proxy-url"] = connection.proxy
        if connection.ca is not None:
            cluster["certificate-authority-data"] = connection.ca.read()  # msgspec writes bytes as base64
        if connection.cluster_extension is not None:
            cluster["config"] = connection.cluster_extension
        spec["cluster"] = cluster
    return {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}


def _read(output: bytes, plugin: Exec, where: str) -> Issued:
    try:
        credential = _CREDENTIAL.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise KubeconfigError(f"{where}: did not print an ExecCredential as JSON") from None
    if credential.kind != "ExecCredential" or credential.api_version != plugin.api_version:
        found = printable(f"{credential.api_version} {credential.kind}")
        raise KubeconfigError(
            f"{where}: printed {found}, but the kubeconfig asks for {plugin.api_version}; make them agree"
        )
    answer = credential.status or _Answer()
    if bool(answer.client_certificate_data) != bool(answer.client_key_data):
        raise KubeconfigError(
            f"{where}: printed a client certificate without its key, or a key without its certificate"
        )
    if not answer.token and not answer.client_certificate_data:
        raise KubeconfigError(f"{where}: printed neither a token nor a client certificate")
    return Issued(
        token=answer.token or None,
        certificate=answer.client_certificate_data.encode() if answer.client_certificate_data else None,
        key=answer.client_key_data.encode() if answer.client_key_data else None,
        expires=answer.expiration_timestamp,
    )
