"""Reads from the API server what the doctor examines. Checks of kinds that may not be read are left out and named."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from dovetail.kube.api.typed import TypedReader
from dovetail.kube.doctor.installed import (
    EndpointSlice,
    PolicyBinding,
    RoleBindingObject,
    RoleObject,
    WebhookConfiguration,
)
from dovetail.kube.doctor.rights import NEEDED_RIGHTS, NeededRight, lacking
from dovetail.kube.doctor.service_probes import service_probes
from dovetail.kube.doctor.survey import Missing, Probe
from dovetail.kube.doctor.webhooks import SERVICE_NAME, WEBHOOK_KINDS, WEBHOOK_SERVICE, of_dovetail, read_certificates
from dovetail.kube.live.lease import ROOT, Lease, Marks
from dovetail.kube.live.pod_group_watches import OTHER_KINDS, WATCHED_POD_GROUPS
from dovetail.kube.live.queue_watches import WATCHED_QUEUES
from dovetail.kube.live.server_version import version_in
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import printable
from dovetail.kube.objects.queues import QUEUE_KINDS

T = TypeVar("T")
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PROBE_SECONDS = 5.0
REVIEWS_AT_ONCE = 16  # requests about rights that are under way together
NO_PARAMS: dict[str, str] = {}


class Source(NamedTuple):
    kind: str
    path: str
    type: type[Any]
    params: dict[str, str] = NO_PARAMS


LISTED_KINDS = (
    Source("Namespace", "/api/v1/namespaces", objects.Namespace),
    Source("ResourceQuota", "/api/v1/resourcequotas", objects.ResourceQuota),
    Source("Lease", f"{ROOT}/leases", Lease, {"labelSelector": Marks.LABEL}),
    *(Source(kind, f"{ADMISSION}/{kind.lower()}s", WebhookConfiguration) for kind in WEBHOOK_KINDS),
    Source("ValidatingAdmissionPolicy", f"{ADMISSION}/validatingadmissionpolicies", objects.Named),
    Source("ValidatingAdmissionPolicyBinding", f"{ADMISSION}/validatingadmissionpolicybindings", PolicyBinding),
    Source("FlowSchema", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", objects.Named),
    *(
        Source("PodGroup", f"/apis/{group}/{version}/podgroups", objects.PodGroup)
        for group, version in WATCHED_POD_GROUPS
        if group not in OTHER_KINDS
    ),
    *(Source(f"{one.kind}.{one.api_group}", one.path, QUEUE_KINDS[one.api_group, one.kind]) for one in WATCHED_QUEUES),
)
LISTED_ROLES = (
    *(Source(kind, f"{RBAC}/{kind.lower()}s", RoleObject) for kind in ("ClusterRole", "Role")),
    *(Source(kind, f"{RBAC}/{kind.lower()}s", RoleBindingObject) for kind in ("ClusterRoleBinding", "RoleBinding")),
)


@dataclass(slots=True)
class Gathered:
    """What was read. A kind that is absent from `kinds` could not be read."""

    kinds: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    version: tuple[int, int] | None = None
    served: dict[str, frozenset[str]] | None = None
    missing: tuple[Missing, ...] = ()
    probes: tuple[Probe, ...] = ()


async def listed(api: Api, source: Source, remarks: list[str]) -> tuple[Any, ...] | None:
    """The objects; None where we may not read them. A kind that is not served has no objects."""
    found: list[Any] = []
    try:
        async for page in api.list_pages(source.path, TypedReader(source.type), version="", params=source.params):
            found += page.items
            remarks += (f"{source.kind} {one.ref} cannot be read: {one.message}" for one in page.unreadable)
    except NotFound:
        return ()
    except (Forbidden, Unauthorized) as error:
        remarks.append(f"{source.kind}s are not examined: {error.message}")
        return None
    return tuple(found)


async def gather(
    api: Api,
    account: tuple[str, str],
    rights: Sequence[NeededRight] = NEEDED_RIGHTS,
    *,
    now: float,
    doing: Callable[[str], None] = lambda what: None,
) -> Gathered:
    """Everything beside nodes and pods. `doing` is told what is read. Raises ApiError where the server is away."""
    result = Gathered()
    doing("Reading the objects around nodes and pods")
    lists = await asyncio.gather(*(listed(api, source, result.remarks) for source in LISTED_KINDS))
    for source, found in zip(LISTED_KINDS, lists, strict=True):
        if found is not None:
            result.kinds[source.kind] = (*result.kinds.get(source.kind, ()), *found)
    result.version, result.served = await _version(api), await _served(api)
    doing("Asking the webhook")
    await _read_services(api, account[0], result)
    result.probes = tuple(await _probes(api, result, now))
    doing("Asking for the scheduler's rights")
    result.missing = tuple(await _missing_rights(api, account, rights, result))
    return result


async def _version(api: Api) -> tuple[int, int] | None:
    return version_in(await api.get("/version"))


class _GroupVersion(msgspec.Struct, frozen=True):
    version: str = ""


class _Group(msgspec.Struct, frozen=True):
    name: str = ""
    versions: list[_GroupVersion] = []


class _Groups(msgspec.Struct, frozen=True):
    groups: list[_Group] = []


async def _served(api: Api) -> dict[str, frozenset[str]]:
    said = msgspec.json.decode(await api.get("/apis"), type=_Groups)
    return {group.name: frozenset(one.version for one in group.versions) for group in said.groups}


# ---- the webhook ----------------------------------------------------------------------------------------------------


def _own_webhooks(result: Gathered) -> Iterable[tuple[str, Any]]:
    for kind in WEBHOOK_KINDS:
        for one in result.kinds.get(kind, ()):
            if of_dovetail(one.metadata):
                yield from ((f"{kind} {one.metadata.name}", webhook.client_config) for webhook in one.webhooks)


async def _read_services(api: Api, own: str, result: Gathered) -> None:
    """The Services of our webhooks, and the addresses behind them. `own`: the namespace of the scheduler."""
    names = {(one.service.namespace, one.service.name) for _, one in _own_webhooks(result) if one.service is not None}
    names.add((own, WEBHOOK_SERVICE))
    services: list[Any] = []
    slices: list[Any] = []
    for namespace, name in sorted(names):
        try:
            body = await api.get(f"/api/v1/namespaces/{namespace}/services/{name}")
            services.append(msgspec.json.decode(body, type=objects.Named))
            path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
            source = Source("EndpointSlice", path, EndpointSlice, {"labelSelector": f"{SERVICE_NAME}={name}"})
            found = await listed(api, source, result.remarks)
            if found is None:
                return
            slices += found
        except NotFound:
            continue
        except Forbidden as error:
            result.remarks.append(f"Services are not examined: {error.message}")
            return
    result.kinds |= {"Service": tuple(services), "EndpointSlice": tuple(slices)}


async def _probes(api: Api, result: Gathered, now: float) -> list[Probe]:
    """The answers of webhooks: of a URL by a handshake of our own, of a Service through the API server."""
    found: dict[tuple[str, str], Probe] = {}
    services = {(one.metadata.namespace, one.metadata.name) for one in result.kinds.get("Service", ())}
    for title, client in _own_webhooks(result):
        service = client.service
        if service is not None and (service.namespace, service.name) in services:
            has_pods = any(
                one.is_ready
                for one in result.kinds.get("EndpointSlice", ())
                if one.metadata.namespace == service.namespace and one.metadata.labels.get(SERVICE_NAME) == service.name
            )
            for one in await service_probes(api, title, client, has_pods, now, result.remarks):
                found.setdefault((title, one.address), one)
        address = urlsplit(client.url) if client.url else None
        if address is None or not address.hostname or address.scheme != "https":
            continue
        place = f"{address.hostname}:{address.port or 443}"
        if (title, place) not in found:
            found[title, place] = await probe(title, address.hostname, address.port or 443, client.ca_bundle)
    return list(found.values())


async def probe(title: str, host: str, port: int, ca_bundle: str) -> Probe:
    """A TLS handshake, verified by the caBundle as the API server does."""
    place, refused = f"{host}:{port}", ""
    try:
        trusted = ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode() if ca_bundle else None)
        not_after = await _handshake(host, port, trusted)
        return Probe(title, place, not_after=not_after)
    except ssl.SSLCertVerificationError as error:
        refused = error.verify_message or str(error)
    except (binascii.Error, ValueError, ssl.SSLError) as error:
        if not isinstance(error, ssl.SSLError) or "PEM" in str(error) or "certificate" in str(error).lower():
            refused = f"the caBundle cannot be read ({printable(str(error), 100)})"
        else:
            return Probe(title, place, unreachable=f"it does not speak TLS ({printable(str(error), 100)})")
    except (OSError, TimeoutError) as error:
        return Probe(title, place, unreachable=printable(str(error) or type(error).__name__, 200))
    return Probe(title, place, refused=printable(refused, 200))


async def _handshake(host: str, port: int, trusted: ssl.SSLContext) -> float | None:
    """When the server's certificate expires."""
    async with asyncio.timeout(PROBE_SECONDS):
        _, writer = await asyncio.open_connection(host, port, ssl=trusted)
    try:
        secured = writer.get_extra_info("ssl_object")
        der = secured.getpeercert(binary_form=True) if secured is not None else None
        return read_certificates(ssl.DER_cert_to_PEM_cert(der).encode())[0].not_after if der else None
    finally:
        writer.close()


# ---- rights ---------------------------------------------------------------------------------------------------------


class _AccessAnswer(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _AccessAnswer = _AccessAnswer()


async def _missing_rights(
    api: Api, account: tuple[str, str], rights: Sequence[NeededRight], result: Gathered
) -> list[Missing]:
    """What the ServiceAccount lacks: by the API server's answer, else by the Roles and bindings."""
    try:
        return await _reviewed(api, account, rights)
    except Forbidden as error:
        refused = error.message
    remarks: list[str] = []
    kinds = {source.kind: await listed(api, source, remarks) for source in LISTED_ROLES}
    if any(found is None for found in kinds.values()):
        result.remarks.append(f"rights are not examined: {refused}")
        return []
    return lacking({kind: found for kind, found in kinds.items() if found is not None}, account, rights)


async def _reviewed(api: Api, account: tuple[str, str], rights: Sequence[NeededRight]) -> list[Missing]:
    gate = asyncio.Semaphore(REVIEWS_AT_ONCE)
    own = await _is_own(api, account)

    async def allowed(right: NeededRight, group: str, resource: str, verb: str) -> bool:
        async with gate:
            return await _review(api, account, own, _attributes(account, right, group, resource, verb))

    found: list[Missing] = []
    for right in rights:
        for group, resource in right.each():
            answers = await asyncio.gather(*(allowed(right, group, resource, verb) for verb in right.verbs))
            verbs = tuple(verb for verb, answer in zip(right.verbs, answers, strict=True) if not answer)
            if verbs:
                found.append(Missing(group, resource, verbs, right.why, account[0] if right.namespaced else ""))
    return found


async def _is_own(api: Api, account: tuple[str, str]) -> bool:
    """Whether we ask as this ServiceAccount: then we may ask without a right to ask for others."""
    try:
        body = await api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {"kind": "SelfSubjectReview"})
        said = msgspec.json.decode(body)
        return bool(said["status"]["userInfo"]["username"] == f"system:serviceaccount:{account[0]}:{account[1]}")
    except (ApiError, KeyError, TypeError):
        return False


def _attributes(account: tuple[str, str], right: NeededRight, group: str, resource: str, verb: str) -> dict[str, str]:
    resource, _, part = resource.partition("/")
    asked = {"group": group, "resource": resource, "subresource": part, "verb": verb}
    asked["namespace"] = account[0] if right.namespaced else ""
    asked["name"] = right.names[0] if right.names else ""
    return asked


async def _review(api: Api, account: tuple[str, str], own: bool, attributes: dict[str, str]) -> bool:
    kind = "SelfSubjectAccessReview" if own else "SubjectAccessReview"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{account[0]}", "system:authenticated"]
    user = {} if own else {"user": f"system:serviceaccount:{account[0]}:{account[1]}", "groups": groups}
    spec = {"resourceAttributes": attributes, **user}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    said = await api.post(f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body)
    return msgspec.json.decode(said, type=_Review).status.allowed
