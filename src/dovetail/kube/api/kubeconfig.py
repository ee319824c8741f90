"""kubeconfig files and the service account of a pod → one `Connection`: the server's address and our credentials.

Reads files, opens no sockets. Merging follows kubectl: of several files the first that sets a value wins, and paths are
relative to the file that contains them. Errors name the file, the field and the fix, never a secret.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import yaml

from dovetail import files
from dovetail.kube.api.proxy import proxy_for
from dovetail.kube.files.yaml_text import TextError, documents
from dovetail.kube.objects.problems import printable

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOOPBACK = re.compile(r"http://(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?(/|\Z)")
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class KubeconfigError(Exception):
    """The API server's address or our credentials cannot be found. The text says what to do."""


class Kebab(msgspec.Struct, rename="kebab", frozen=True):
    """kubeconfig's spelling; unknown fields are ignored."""


class KubeconfigCluster(Kebab, frozen=True):
    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[Any] | None = None


class Variable(msgspec.Struct, frozen=True):
    name: str
    value: str


class Exec(msgspec.Struct, rename="camel", frozen=True):
    """A program that prints credentials."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str | None = None
    interactive_mode: str | None = None
    provide_cluster_info: bool = False


class KubeconfigUser(Kebab, frozen=True):
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    exec: Exec | None = None
    auth_provider: Any = None
    username: str | None = None
    impersonate: str | None = msgspec.field(name="as", default=None)
    impersonate_uid: str | None = msgspec.field(name="as-uid", default=None)
    impersonate_groups: list[str] | None = msgspec.field(name="as-groups", default=None)
    impersonate_extra: dict[str, list[str]] | None = msgspec.field(name="as-user-extra", default=None)


class KubeconfigContext(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: KubeconfigCluster | None = None


class NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: KubeconfigUser | None = None


class NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: KubeconfigContext | None = None


class File(Kebab, frozen=True):
    """One kubeconfig file."""

    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None
    current_context: str | None = None


@dataclass(frozen=True, slots=True)
class Pem:
    """A certificate or key: a file that may be rotated, or data. Never printed."""

    path: Path | None = None
    data: bytes | None = field(default=None, repr=False)

    def read(self) -> bytes:
        if self.data is not None:
            return self.data
        assert self.path is not None
        return _read(self.path)


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of the API server, and the credentials for it. Secrets do not appear in its repr."""

    server: str  # without a slash at the end
    source: str  # for messages: "context admin of /home/me/.kube/config"
    namespace: str = "default"
    ca: Pem | None = None
    insecure: bool = False
    server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)  # may hold a password
    certificate: Pem | None = None
    key: Pem | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    plugin: Exec | None = field(default=None, repr=False)
    plugin_folder: Path | None = None  # commands with a relative path start here
    cluster_extension: Any = None  # facts about the cluster for the plugin
    headers: tuple[tuple[str, str], ...] = ()  # impersonation
    cluster: str = ""  # its name in the kubeconfig

    @property
    def doubts(self) -> tuple[str, ...]:
        """What makes the connection unsafe; reported at every start."""
        where = f"cluster {printable(self.cluster)} ({printable(self.server, 300)}), {self.source}"
        harm = "another host on the network can read the credentials and answer as the API server"
        if self.server.startswith("https:") and self.insecure:
            fix = "remove insecure-skip-tls-verify and set certificate-authority-data"
            return (f"TLS VERIFICATION IS OFF for {where}: {harm}; {fix}",)
        if self.server.startswith("http:") and not _LOOPBACK.match(self.server):
            return (f"THE CONNECTION IS NOT ENCRYPTED for {where}: {harm}; use an https:// server",)
        return ()


def find(
    environ: Mapping[str, str],
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """The connection to use: the file given, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

    A requested context is searched in files only. Proxies from the environment apply where no file names one.
    """
    found = _find(environ, kubeconfig, context, home or Path.home(), service_account)
    return found if found.proxy else replace(found, proxy=proxy_for(found.server, environ))


def _find(
    environ: Mapping[str, str], kubeconfig: Path | None, context: str | None, home: Path, service_account: Path
) -> Connection:
    if kubeconfig is not None:
        return from_files([kubeconfig], context)
    if environ.get("KUBECONFIG"):
        listed = [Path(part).expanduser() for part in environ["KUBECONFIG"].split(":") if part]
        there = [path for path in listed if path.exists()]
        if not there:
            raise KubeconfigError(f"KUBECONFIG={environ['KUBECONFIG']}: no such file; correct KUBECONFIG or unset it")
        return from_files(there, context)
    if context is None and environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return from_service_account(environ, service_account)
    default = home / ".kube" / "config"
    if not default.exists():
        raise KubeconfigError(
            f"no cluster found: {default} does not exist, KUBECONFIG is not set, and this is no pod with a service "
            f"account ({service_account}/token); say --kubeconfig FILE"
        )
    return from_files([default], context)


def from_service_account(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Connection:
    """The connection that the kubelet gives to every pod. The token is read again as the kubelet rotates it."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise KubeconfigError("KUBERNETES_SERVICE_HOST is not set: not in a pod? say --kubeconfig FILE")
    namespace = folder / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        source=f"the service account in {folder}",
        namespace=_read(namespace).decode(errors="replace").strip() if namespace.exists() else "default",
        ca=Pem(path=folder / "ca.crt"),
        token_file=folder / "token",
    )


def from_files(paths: Sequence[Path], context: str | None = None) -> Connection:
    """The connection of a context (default: current-context) in the files, merged."""
    files = [(path, read_file(path)) for path in paths]
    listed = ", ".join(str(path) for path in paths)
    name = context or next((file.current_context for _, file in files if file.current_context), "")
    if not name:
        raise KubeconfigError(f"{listed}: current-context is not set; say --context NAME or set it: {_known(files)}")
    contexts = [(path, each.context, each.name) for path, file in files for each in file.contexts or ()]
    chosen = _first(contexts, name, f"{listed}: contexts: there is no context {name!r}; {_known(files)}")[1]
    where = f"{listed}: contexts[{name}]"
    clusters = [(path, each.cluster, each.name) for path, file in files for each in file.clusters or ()]
    users = [(path, each.user, each.name) for path, file in files for each in file.users or ()]
    cluster = _first(clusters, chosen.cluster, f"{where}.cluster: there is no cluster {chosen.cluster!r} in clusters")
    user = paths[0], KubeconfigUser()
    if chosen.user:
        user = _first(users, chosen.user, f"{where}.user: there is no user {chosen.user!r} in users")
    source = f"context {printable(name)} of {listed}"
    return _connection(source, chosen, cluster, user)


def read_file(path: Path) -> File:
    """A kubeconfig file, typed. Neither YAML's messages nor ours quote its lines: they may be secrets."""
    try:
        text = _read(path).decode("utf-8-sig")
        found = list(documents(text, lambda _: None))
    except UnicodeDecodeError as error:
        raise KubeconfigError(f"{path}: is not UTF-8 text (byte {error.start}); is it a kubeconfig file?") from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}" if error.problem_mark else "somewhere"
        raise KubeconfigError(f"{path}: is broken YAML at {line}: {error.problem}") from None
    except (yaml.YAMLError, TextError) as error:
        said = f": {error}" if isinstance(error, TextError) else ""
        raise KubeconfigError(f"{path}: is broken YAML{said}") from None
    content = next((document for document in found if document is not None), None)
    if content is None:
        raise KubeconfigError(
            f"{path}: is empty; write a kubeconfig there (`kubectl config view --raw --flatten` prints one)"
        )
    try:
        return msgspec.convert(content, File)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise KubeconfigError(f"{path}: {place.strip('.`') or 'the file'}: {message[0].lower()}{message[1:]}") from None


def _is_server(text: str) -> bool:
    """Whether the text is a URL with a host and, if it has one, a valid port."""
    try:
        parts = urlsplit(text)
        return text.isprintable() and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _connection(
    source: str, context: KubeconfigContext, cluster: tuple[Path, KubeconfigCluster], user: tuple[Path, KubeconfigUser]
) -> Connection:
    (cluster_file, at), (user_file, who) = cluster, user
    where = f"{cluster_file}: clusters[{printable(context.cluster)}]"
    me = f"{user_file}: users[{printable(context.user)}]"
    if not _is_server(at.server):
        raise KubeconfigError(f"{where}.cluster.server: must be a URL such as https://10.0.0.1:6443")
    if at.proxy_url and not at.proxy_url.startswith(("http://", "https://")):
        raise KubeconfigError(f"{where}.cluster.proxy-url: only http:// and https:// proxies are supported")
    _check_user(me, who)
    certificate = _pem(user_file, who.client_certificate, who.client_certificate_data, f"{me}.user.client-certificate")
    key = _pem(user_file, who.client_key, who.client_key_data, f"{me}.user.client-key")
    if (certificate is None) != (key is None):
        absent = f"{me}.user.{'client-key' if key is None else 'client-certificate'}"
        raise KubeconfigError(f"{absent}: is missing; a client certificate needs its key, and a key its certificate")
    return Connection(
        server=at.server.rstrip("/"),
        source=source,
        namespace=context.namespace or "default",
        ca=_pem(
            cluster_file,
            at.certificate_authority,
            at.certificate_authority_data,
            f"{where}.cluster.certificate-authority",
        ),
        insecure=bool(at.insecure_skip_tls_verify),
        server_name=at.tls_server_name or None,
        proxy=at.proxy_url or None,
        certificate=certificate,
        key=key,
        token=who.token or None,
        token_file=_file(user_file, who.token_file, f"{me}.user.tokenFile"),
        plugin=who.exec,
        plugin_folder=user_file.absolute().parent,
        cluster_extension=_extension(at),
        headers=_impersonation(who),
        cluster=context.cluster,
    )


def _check_user(me: str, who: KubeconfigUser) -> None:
    if who.auth_provider is not None:
        raise KubeconfigError(
            f"{me}.user.auth-provider: was removed from Kubernetes in 1.26; use an exec plugin instead"
        )
    if who.username is not None:
        raise KubeconfigError(
            f"{me}.user.username: basic authentication was removed from Kubernetes in 1.19; use a token"
        )
    plugin = who.exec
    if plugin is not None and plugin.api_version not in EXEC_VERSIONS:
        raise KubeconfigError(
            f"{me}.user.exec.apiVersion: must be {EXEC_VERSIONS[0]}; update the plugin and the kubeconfig"
        )
    if plugin is not None and plugin.interactive_mode == "Always":
        raise KubeconfigError(
            f"{me}.user.exec.interactiveMode: is Always, but there is no terminal to answer on; use another plugin"
        )


def _impersonation(who: KubeconfigUser) -> tuple[tuple[str, str], ...]:
    """Impersonation headers. Without them we would act with more rights than the file says."""
    headers = [("Impersonate-Group", group) for group in who.impersonate_groups or ()]
    if who.impersonate:
        headers.append(("Impersonate-User", who.impersonate))
    if who.impersonate_uid:
        headers.append(("Impersonate-Uid", who.impersonate_uid))
    for key, values in (who.impersonate_extra or {}).items():
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    return tuple(headers)


def _extension(cluster: KubeconfigCluster) -> Any:
    """The facts about a cluster for exec plugins (client.authentication.k8s.io/exec)."""
    for each in cluster.extensions or ():
        if isinstance(each, dict) and each.get("name") == "client.authentication.k8s.io/exec":
            return each.get("extension")
    return None


def _pem(beside: Path, path: str | None, data: str | None, where: str) -> Pem | None:
    if data:
        try:
            return Pem(data=base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError):
            raise KubeconfigError(f"{where}-data: is not base64; paste the whole value in one line") from None
    found = _file(beside, path, where)
    return Pem(path=found) if found is not None else None


def _file(beside: Path, path: str | None, where: str) -> Path | None:
    if not path:
        return None
    found = beside.absolute().parent / Path(path).expanduser()
    if not found.is_file():
        raise KubeconfigError(f"{where}: there is no file {found}; correct the path")
    return found


def _read(path: Path) -> bytes:
    try:
        return files.read_input(path, files.MAX_SETTINGS_BYTES)
    except FileNotFoundError:
        raise KubeconfigError(f"{path}: no such file; correct the path") from None
    except OSError as error:
        raise KubeconfigError(f"{path}: cannot be read: {error.strerror}") from None


Part = TypeVar("Part")


def _first(parts: Sequence[tuple[Path, Part | None, str]], name: str, otherwise: str) -> tuple[Path, Part]:
    """The first part of that name, and the file that contains it."""
    for path, part, called in parts:
        if called == name and part is not None:
            return path, part
    raise KubeconfigError(otherwise)


def _known(files: Sequence[tuple[Path, File]]) -> str:
    names = sorted({each.name for _, file in files for each in file.contexts or ()})
    return f"known: {', '.join(printable(name) for name in names[:20])}" if names else "the files know no context"
