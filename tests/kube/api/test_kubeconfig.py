"""kubeconfig files and service accounts: what is found, and what is said when something is wrong."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.kube.api.kubeconfig import Connection, KubeconfigError, Pem, find, from_files

SECRET = "s3cr3t-t0k3n"


def config(
    name: str = "one",
    *,
    current: str | None = "one",
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A kubeconfig with one context, cluster and user of that name."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        **({"current-context": current} if current else {}),
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": {"token": SECRET} if user is None else user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}],
    }


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def complaint(path: Path, content: object, context: str | None = None) -> str:
    with pytest.raises(KubeconfigError) as caught:
        from_files([write(path, content)], context)
    assert str(path) in str(caught.value)
    assert SECRET not in str(caught.value)
    return str(caught.value).replace(str(path), "FILE")


def test_a_file_with_a_token(tmp_path: Path) -> None:
    found = from_files([write(tmp_path / "config", config())])
    assert (found.server, found.token, found.namespace) == ("https://one:6443", SECRET, "ns-one")
    assert SECRET not in repr(found)


def test_another_context_than_the_current_one(tmp_path: Path) -> None:
    both = config()
    for part in ("clusters", "users", "contexts"):
        both[part] += config("two")[part]
    path = write(tmp_path / "config", both)
    assert from_files([path]).server == "https://one:6443"
    assert from_files([path], "two").server == "https://two:6443"


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "first", config("one", current="two"))
    second = write(tmp_path / "second", config("two", current="one"))
    other_one = write(tmp_path / "third", {**config("one"), "clusters": [{"name": "one", "cluster": {"server": "x"}}]})
    environ = {"KUBECONFIG": f"{first}:{tmp_path / 'missing'}:{second}::{other_one}"}
    assert find(environ).server == "https://two:6443"  # current-context of the first, found in the second
    assert find(environ, context="one").server == "https://one:6443"  # the third is too late


def test_paths_are_relative_to_their_own_file(tmp_path: Path) -> None:
    write(tmp_path / "a" / "ca.pem", "CA")
    write(tmp_path / "b" / "me.pem", "CERT")
    write(tmp_path / "b" / "me.key", "KEY")
    write(tmp_path / "b" / "token", "tok")
    user = {"client-certificate": "me.pem", "client-key": "me.key", "tokenFile": "token"}
    one = config(cluster={"certificate-authority": "ca.pem"})
    a = write(tmp_path / "a" / "config", {**one, "users": []})
    b = write(tmp_path / "b" / "config", {"users": config(user=user)["users"]})
    found = from_files([a, b])
    assert found.ca == Pem(path=tmp_path / "a" / "ca.pem")
    assert found.certificate == Pem(path=tmp_path / "b" / "me.pem")
    assert found.token_file == tmp_path / "b" / "token"


def test_data_wins_over_files(tmp_path: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    path = write(
        tmp_path / "config", config(cluster={"certificate-authority-data": data, "certificate-authority": "/missing"})
    )
    found = from_files([path])
    assert found.ca is not None
    assert found.ca.read() == b"PEM"
    assert "PEM" not in repr(found.ca)


def test_everything_else_a_cluster_says(tmp_path: Path) -> None:
    said = {"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
    found = from_files([write(tmp_path / "config", config(cluster=said))])
    assert (found.insecure, found.server_name, found.proxy) == (True, "kubernetes", "http://proxy:3128")


def test_a_connection_that_is_not_verified_is_said_with_context_and_cluster(tmp_path: Path) -> None:
    path = write(tmp_path / "config", config(cluster={"insecure-skip-tls-verify": True}))
    [said] = from_files([path]).doubts
    assert said.startswith("TLS VERIFICATION IS OFF for cluster ")
    for fact in (
        "https://",
        "cluster one (https://one:6443)",
        f"context one of {path}",
        "remove insecure-skip-tls-verify",
    ):
        assert fact in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("server", "doubted"),
    [
        ("https://10.0.0.1:6443", False),
        ("http://10.0.0.1:8080", True),
        ("http://127.0.0.1:8001", False),  # kubectl proxy
        ("http://localhost:8001", False),
        ("http://127.0.0.1.example.com:8001", True),
        ("http://localhost@example.com", True),
    ],
)
def test_a_connection_without_tls_is_said_unless_it_stays_on_this_machine(
    tmp_path: Path, server: str, doubted: bool
) -> None:
    found = from_files([write(tmp_path / "config", config(cluster={"server": server}))])
    assert any("NOT ENCRYPTED" in doubt and server in doubt for doubt in found.doubts) is doubted


def test_acting_as_somebody_else(tmp_path: Path) -> None:
    user = {"token": SECRET, "as": "jane", "as-groups": ["dev", "ops"], "as-uid": "7", "as-user-extra": {"a/b": ["x"]}}
    found = from_files([write(tmp_path / "config", config(user=user))])
    assert sorted(found.headers) == [
        ("Impersonate-Extra-a%2Fb", "x"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-User", "jane"),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "FILE: is empty"),
        ("# nothing but a comment\n", "FILE: is empty"),
        ("users:\n- name: a\n  user: {token: s3cr3t-t0k3n\n", "FILE: is broken YAML at line"),
        ("a: &a [*a]", "FILE: is broken YAML: has an alias that contains itself"),
        ("[]", "FILE: the file: expected `object`, got `array`"),
        ("users:\n- name: a\n  user: {token: 12345}\n", "FILE: users[0].user.token: expected `str | null`, got `int`"),
        ({"current-context": "gone"}, "FILE: contexts: there is no context 'gone'; the files know no context"),
        (config(current=None), "FILE: current-context is not set; say --context NAME or set it: known: one"),
        ({**config(), "clusters": []}, "FILE: contexts[one].cluster: there is no cluster 'one' in clusters"),
        ({**config(), "users": None}, "FILE: contexts[one].user: there is no user 'one' in users"),
        (config(cluster={"server": "one:6443"}), "FILE: clusters[one].cluster.server: must be a URL"),
        (config(cluster={"server": "https://one:99999"}), "FILE: clusters[one].cluster.server: must be a URL"),
        (config(cluster={"server": "https://["}), "FILE: clusters[one].cluster.server: must be a URL"),
        (config(cluster={"server": "https://one:1\r\nX: y"}), "FILE: clusters[one].cluster.server: must be a URL"),
        (
            config(cluster={"proxy-url": "socks5://x"}),
            "FILE: clusters[one].cluster.proxy-url: only http:// and https://",
        ),
        (
            config(cluster={"certificate-authority-data": "%%%"}),
            "FILE: clusters[one].cluster.certificate-authority-data: is not",
        ),
        (config(cluster={"certificate-authority": "/no/ca"}), "cluster.certificate-authority: there is no file /no/ca"),
        (config(user={"tokenFile": "/no/token"}), "FILE: users[one].user.tokenFile: there is no file /no/token"),
        (config(user={"client-key-data": "QQ=="}), "FILE: users[one].user.client-certificate: is missing"),
        (config(user={"auth-provider": {"name": "gcp"}}), "FILE: users[one].user.auth-provider: was removed"),
        (config(user={"username": "a", "password": SECRET}), "FILE: users[one].user.username: basic authentication"),
        (
            config(user={"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}),
            "FILE: users[one].user.exec.apiVersion: must be client.authentication.k8s.io/v1;",
        ),
        (
            config(
                user={
                    "exec": {
                        "command": "x",
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "interactiveMode": "Always",
                    }
                }
            ),
            "FILE: users[one].user.exec.interactiveMode: is Always",
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_and_field(tmp_path: Path, content: object, said: str) -> None:
    assert said in complaint(tmp_path / "config", content)


def test_no_such_context_names_those_there_are(tmp_path: Path) -> None:
    assert "there is no context 'two'; known: one" in complaint(tmp_path / "config", config(), "two")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"\x80\x81")
    with pytest.raises(KubeconfigError, match="is not UTF-8 text"):
        from_files([tmp_path / "config"])


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"/gone: no such file"):
        find({}, kubeconfig=tmp_path / "gone")
    with pytest.raises(KubeconfigError, match=r"KUBECONFIG=.*/gone: no such file"):
        find({"KUBECONFIG": str(tmp_path / "gone")})
    with pytest.raises(KubeconfigError, match="no cluster found"):
        find({}, home=tmp_path, service_account=tmp_path)


def service_account(folder: Path) -> Path:
    write(folder / "token", SECRET)
    write(folder / "ca.crt", "CA")
    write(folder / "namespace", "dovetail\n")
    return folder


def in_pod(tmp_path: Path, host: str = "10.0.0.1", **more: Any) -> Connection:
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    return find(environ, home=tmp_path, service_account=service_account(tmp_path / "sa"), **more)


def test_in_a_pod(tmp_path: Path) -> None:
    found = in_pod(tmp_path)
    assert (found.server, found.namespace) == ("https://10.0.0.1:443", "dovetail")
    assert found.token_file == tmp_path / "sa" / "token"
    assert in_pod(tmp_path, host="fd00::1").server == "https://[fd00::1]:443"


def test_a_context_that_is_asked_for_wins_over_the_pod(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", config())
    assert in_pod(tmp_path).server == "https://10.0.0.1:443"
    assert in_pod(tmp_path, context="one").server == "https://one:6443"


def test_the_home_folder_comes_last(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", config())
    assert find({}, home=tmp_path, service_account=tmp_path).server == "https://one:6443"


@pytest.mark.parametrize(
    ("server", "exempt", "proxied"),
    [
        ("https://api.example.com:6443", "", True),
        ("https://api.example.com:6443", "example.com", False),
        ("https://api.example.com:6443", ".example.com", False),
        ("https://example.com:6443", ".example.com", True),
        ("https://notexample.com:6443", "example.com", True),
        ("https://api.example.com:6443", "other.org, *.example.com", False),
        ("https://api.example.com:6443", "api.example.com:443", True),
        ("https://api.example.com:6443", "api.example.com:6443", False),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://10.1.2.3:6443", "192.168.0.0/16,10.1.2.3", False),
        ("https://10.1.2.3:6443", "10.1.2.4,nonsense/99", True),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://10.1.2.3:6443", "*", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
        ("http://api.example.com", "", False),  # HTTP_PROXY is not set
    ],
)
def test_a_proxy_of_the_environment(tmp_path: Path, server: str, exempt: str, proxied: bool) -> None:
    path = write(tmp_path / "config", config(cluster={"server": server}))
    environ = {"https_proxy": "proxy:3128", "NO_PROXY": exempt}
    assert find(environ, kubeconfig=path).proxy == ("http://proxy:3128" if proxied else None)


def test_the_proxy_in_the_file_wins(tmp_path: Path) -> None:
    path = write(tmp_path / "config", config(cluster={"proxy-url": "http://mine:1"}))
    assert find({"HTTPS_PROXY": "http://other:2"}, kubeconfig=path).proxy == "http://mine:1"
