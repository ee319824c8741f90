"""Credentials stay fresh: rotated tokens and certificates, exec plugins, TLS both ways."""

from __future__ import annotations

import asyncio
import ssl
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import Unavailable
from dovetail.kube.api.kubeconfig import Connection, Exec, KubeconfigError, Pem, Variable
from dovetail.kube.api.retry import World
from tests.kube.api.stub import Clock, Stub, refuses, says, serving

V1 = "client.authentication.k8s.io/v1"
NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(authority: trustme.CA, name: str = "127.0.0.1", *, ask: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context


def ca_of(authority: trustme.CA) -> Pem:
    return Pem(data=authority.cert_pem.bytes())


async def version(stub: Stub, **how: Any) -> None:
    async with Api(Credentials(Connection(stub.url, "a test", **how))) as api:
        await api.get("/version")


async def token_of(credentials: Credentials) -> str:
    return dict((await credentials.proof())[0])["Authorization"].removeprefix("Bearer ")


async def test_a_server_that_the_clusters_ca_vouches_for(authority: trustme.CA) -> None:
    async with serving(server_tls(authority)) as stub:
        await version(stub, ca=ca_of(authority))


async def test_a_server_that_nobody_vouches_for_is_not_believed(authority: trustme.CA) -> None:
    async with serving(server_tls(trustme.CA())) as stub:
        with pytest.raises(Unavailable, match=r"certificate is not believed.*certificate-authority"):
            await version(stub, ca=ca_of(authority))
        await version(stub, insecure=True)  # unless told to


async def test_a_server_with_another_name(authority: trustme.CA) -> None:
    async with serving(server_tls(authority, "kubernetes.default.svc")) as stub:
        with pytest.raises(Unavailable, match="tls-server-name"):
            await version(stub, ca=ca_of(authority))
        await version(stub, ca=ca_of(authority), server_name="kubernetes.default.svc")


async def test_a_client_certificate_from_data_and_from_files(authority: trustme.CA, tmp_path: Path) -> None:
    me = authority.issue_cert("dovetail")
    chain, key = me.cert_chain_pems[0].bytes(), me.private_key_pem.bytes()
    (tmp_path / "cert").write_bytes(chain)
    (tmp_path / "key").write_bytes(key)
    async with serving(server_tls(authority, ask=True)) as stub:
        await version(stub, ca=ca_of(authority), certificate=Pem(data=chain), key=Pem(data=key))
        await version(stub, ca=ca_of(authority), certificate=Pem(tmp_path / "cert"), key=Pem(tmp_path / "key"))
        with pytest.raises(Unavailable):
            await version(stub, ca=ca_of(authority))


async def test_a_key_of_another_certificate(authority: trustme.CA) -> None:
    one, other = authority.issue_cert("one"), authority.issue_cert("other")
    certificate, key = Pem(data=one.cert_chain_pems[0].bytes()), Pem(data=other.private_key_pem.bytes())
    with pytest.raises(KubeconfigError, match="client-certificate-data") as caught:
        await Credentials(Connection("https://x", "context one of FILE", certificate=certificate, key=key)).proof()
    assert "PRIVATE" not in str(caught.value)


async def test_a_ca_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("hello")
    with pytest.raises(KubeconfigError, match=r"ca\.crt: holds no certificate"):
        await Credentials(Connection("https://x", "a test", ca=Pem(tmp_path / "ca.crt"))).proof()


async def test_a_rotated_ca_is_noticed(authority: trustme.CA, tmp_path: Path) -> None:
    ca, clock = tmp_path / "ca.crt", Clock()
    ca.write_bytes(trustme.CA().cert_pem.bytes())
    async with serving(server_tls(authority)) as stub:
        credentials = Credentials(Connection(stub.url, "a test", ca=Pem(ca)), world=clock.world)
        async with Api(credentials) as api:
            with pytest.raises(Unavailable):
                await api.get("/version")
            ca.write_bytes(authority.cert_pem.bytes() + b"\n")
            clock.at += 60
            await api.get("/version")
            before = await credentials.proof()
            clock.at += 60
            assert (await credentials.proof())[1] is before[1]  # unchanged files keep their connections


async def test_a_projected_token_is_read_again_every_minute(tmp_path: Path) -> None:
    token, clock = tmp_path / "token", Clock()
    token.write_text("first\n")
    credentials = Credentials(Connection("http://x", "a test", token_file=token), world=clock.world)
    assert await token_of(credentials) == "first"
    token.write_text("second\n")
    clock.at += 59
    assert await token_of(credentials) == "first"
    clock.at += 1
    assert await token_of(credentials) == "second"


async def test_an_empty_token_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(KubeconfigError, match="token: holds no token"):
        await Credentials(Connection("http://x", "a test", token_file=tmp_path / "token")).proof()


PLUGIN = """
import json, os, sys
count = {counter!r}
n = int(open(count).read() or 0) + 1 if os.path.exists(count) else 1
open(count, "w").write(str(n))
told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
open(count + ".told", "w").write(os.environ["KUBERNETES_EXEC_INFO"])
status = {status!r}
status = {{k: v.replace("N", str(n)) if k == "token" else v for k, v in status.items()}}
print(json.dumps({{"apiVersion": told["apiVersion"], "kind": "ExecCredential", "status": status}}))
"""


def plugin(tmp_path: Path, status: dict[str, str], **more: Any) -> Connection:
    script = tmp_path / "plugin.py"
    script.write_text(PLUGIN.format(counter=str(tmp_path / "count"), status=status))
    runs = Exec(command=sys.executable, api_version=V1, args=[str(script)], **more)
    return Connection("http://x", "context one of FILE", plugin=runs, plugin_folder=tmp_path)


def runs(tmp_path: Path) -> int:
    return int((tmp_path / "count").read_text())


async def test_an_exec_plugin_runs_again_when_its_token_expires(tmp_path: Path) -> None:
    wall = [NOON]
    expires = (NOON + timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    connection, clock = plugin(tmp_path, {"token": "token-N", "expirationTimestamp": expires}), Clock()
    credentials = Credentials(connection, world=clock.world, wall=lambda: wall[0])
    assert await token_of(credentials) == "token-1"
    clock.at += 3600
    assert await token_of(credentials) == "token-1"  # files are read again, it is not run
    assert runs(tmp_path) == 1
    wall[0] = NOON + timedelta(minutes=10)
    assert await token_of(credentials) == "token-2"


async def test_an_exec_plugin_runs_again_after_401(tmp_path: Path) -> None:
    async with serving() as stub:
        stub.others = [refuses(401), says({})]
        connection = plugin(tmp_path, {"token": "token-N"})
        connection = Connection(stub.url, "a test", plugin=connection.plugin, plugin_folder=tmp_path)
        async with Api(Credentials(connection)) as api:
            await api.get("/version")
        assert [request.headers["Authorization"] for request in stub.seen] == ["Bearer token-1", "Bearer token-2"]


async def test_an_exec_plugin_is_told_of_the_cluster_if_it_wants(tmp_path: Path) -> None:
    env = [Variable("REGION", "eu")]
    await Credentials(plugin(tmp_path, {"token": "t"}, provide_cluster_info=True, env=env), environ={}).proof()
    told = (tmp_path / "count.told").read_text()
    assert told == (
        '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"spec":{"interactive":false,"cluster":{"server":"http://x"}}}'
    )


async def test_an_exec_plugin_may_issue_a_certificate(authority: trustme.CA, tmp_path: Path) -> None:
    me = authority.issue_cert("dovetail")
    status = {
        "clientCertificateData": me.cert_chain_pems[0].bytes().decode(),
        "clientKeyData": me.private_key_pem.bytes().decode(),
    }
    async with serving(server_tls(authority, ask=True)) as stub:
        issued = plugin(tmp_path, status)
        await version(stub, ca=ca_of(authority), plugin=issued.plugin, plugin_folder=tmp_path)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import sys; sys.exit('please log in')", "failed with exit code 1: please log in"),
        ("print('hello')", "did not print an ExecCredential as JSON"),
        ('print(\'{"apiVersion": "v1", "kind": "Secret"}\')', "printed v1 Secret, but the kubeconfig asks for"),
        (f'print(\'{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{}}}}\')', "neither a token nor"),
    ],
)
async def test_what_a_plugin_did_wrong_is_said(script: str, said: str) -> None:
    runs = Exec(command=sys.executable, api_version=V1, args=["-c", script])
    with pytest.raises(KubeconfigError, match="context one of FILE: exec plugin") as caught:
        await Credentials(Connection("http://x", "context one of FILE", plugin=runs)).proof()
    assert said in str(caught.value)


async def test_a_plugin_that_is_not_installed_comes_with_its_hint(tmp_path: Path) -> None:
    runs = Exec(command="dovetail-no-such-plugin", api_version=V1, install_hint="get it from example.com")
    with pytest.raises(
        KubeconfigError, match=r"cannot be started: No such file or directory; get it from example\.com"
    ):
        await Credentials(Connection("http://x", "a test", plugin=runs, plugin_folder=tmp_path)).proof()


async def test_credentials_are_read_once_for_all_who_wait(tmp_path: Path) -> None:
    credentials = Credentials(plugin(tmp_path, {"token": "token-N"}), world=World())
    await asyncio.gather(*(credentials.proof() for _ in range(5)))
    assert runs(tmp_path) == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_credentials_that_were_there_once_may_be_out_of_reach_for_a_while(tmp_path: Path, method: str) -> None:
    """Whoever asks tries again, as with a server that does not answer; the server was not even asked."""
    token, clock = tmp_path / "token", Clock()
    token.write_text("first")
    async with serving() as stub:
        credentials = Credentials(Connection(stub.url, "a test", token_file=token), world=clock.world)
        stub.others = [says({}), says({})]
        async with Api(credentials) as api:
            ask = partial(api.get, "/x") if method == "GET" else partial(api.post, "/x", {})
            await ask()
            for content in ("", "two\nlines"):
                token.write_text(content)
                clock.at += 60
                with pytest.raises(Unavailable, match="no credentials") as caught:
                    await ask()
                assert not caught.value.sent
            token.write_text("second")
            await ask()
        assert [request.headers["Authorization"] for request in stub.seen] == ["Bearer first", "Bearer second"]


async def test_a_plugin_that_fails_after_401_is_asked_again_later(tmp_path: Path) -> None:
    script = tmp_path / "plugin.py"
    runs = Exec(command=sys.executable, api_version=V1, args=[str(script)])
    good = PLUGIN.format(counter=str(tmp_path / "count"), status={"token": "token-N"})
    script.write_text(good)
    async with serving() as stub:
        stub.others = [says({}), refuses(401), refuses(401), says({})]
        async with Api(Credentials(Connection(stub.url, "a test", plugin=runs, plugin_folder=tmp_path))) as api:
            await api.put("/x", {})
            script.write_text("import sys; sys.exit('timeout')")
            with pytest.raises(Unavailable, match="failed with exit code 1: timeout") as caught:
                await api.put("/x", {})
            assert not caught.value.sent
            script.write_text(good)
            await api.put("/x", {})


async def test_credentials_that_never_were_there_are_wrong(tmp_path: Path) -> None:
    async with Api(Credentials(Connection("http://x", "a test", token_file=tmp_path / "token"))) as api:
        for _ in range(2):
            with pytest.raises(KubeconfigError, match="token"):
                await api.get("/version")
