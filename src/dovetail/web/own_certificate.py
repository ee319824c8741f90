"""A certificate that Dovetail makes and renews, or that cert-manager does, shared by the replicas through a Secret.

Each replica looks at the Secret again and again:

1. Where it holds no certificate, or one that is due, the replica writes a new generation. The write names the Secret's
   resourceVersion, so of several replicas one wins, and the others read what it wrote.
2. It writes the bundle of authorities into the MutatingWebhookConfiguration, if it is not there yet.
3. It serves the certificate once the API servers have had time to see the bundle. Until then the previous one is
   served, whose authority is in the bundle as well.

A Secret that cert-manager writes is only read.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.kube.admission.configuration import CONFIGURATIONS_PATH, bundle_patch
from dovetail.kube.admission.own_authority import (
    WRITTEN_BY_CERT_MANAGER,
    Generation,
    UnreadableSecret,
    make_generation,
    read_generation,
    read_issued,
    trusting,
    utc_now,
)
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError, Conflict, NotFound
from dovetail.kube.api.tasks import beside
from dovetail.kube.log import WARNING, Log
from dovetail.web.certificates import BadCertificate, Certificate, CertificatePair

SECRET_SECONDS = 30.0  # between two looks at the Secret
BUNDLE_SECONDS = 5.0  # from the write of the bundle until every API server has seen it, by its watch
LIFETIME = timedelta(days=90)
OWN_CERTIFICATE_MANIFEST = "deploy/optional/webhook/objects.yaml"


@dataclass(frozen=True, slots=True)
class OwnCertificateOptions:
    namespace: str
    secret: str
    names: Sequence[str]  # DNS names of the certificate
    configuration: str  # name of the MutatingWebhookConfiguration; "" = write no bundle
    lifetime: timedelta = LIFETIME
    look_seconds: float = SECRET_SECONDS
    bundle_seconds: float = BUNDLE_SECONDS


class OwnCertificate(Certificate):
    """The certificate of the Secret's newest generation. Call `look` before it is served."""

    def __init__(
        self, api: Api, options: OwnCertificateOptions, log: Log, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._api, self._options, self._log, self._now = api, options, log, now
        self._said = ""
        self._is_served = False  # a certificate of the Secret, so that there is something to lose
        first = make_generation(options.names, now(), options.lifetime)  # no API server trusts it
        super().__init__(CertificatePair(first.chain, first.key))

    @asynccontextmanager
    async def kept_fresh(self, log: Log) -> AsyncIterator[None]:
        async with beside(self._keep()):
            yield

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._options.look_seconds)
            await self.look()

    async def look(self) -> None:
        """One round. What fails is said once, and tried again in the next round."""
        try:
            generation = await self._generation()
            wrote = await self._write_bundle(generation)
            if (generation.chain, generation.key) != (self.pair.chain, self.pair.key):
                if wrote and self._is_served:
                    await asyncio.sleep(self._options.bundle_seconds)
                self.replace(CertificatePair(generation.chain, generation.key))
                self._is_served = True
                whose = "its own certificate" if generation.is_ours else "cert-manager's certificate"
                self._log(f"the webhook serves {whose}: {generation!r}")
            self._said = ""
        except (ApiError, BadCertificate, UnreadableSecret, msgspec.MsgspecError) as error:
            text = f"the webhook's certificate: {error}; see {OWN_CERTIFICATE_MANIFEST}"
            if text != self._said:
                self._said = text
                self._log(text, WARNING)

    async def _generation(self) -> Generation:
        """The Secret's generation, after writing a new one where that is due."""
        path = f"/api/v1/namespaces/{self._options.namespace}/secrets/{self._options.secret}"
        for _ in range(5):
            secret = msgspec.json.decode(await self._api.get(path), type=dict[str, Any])
            if ((secret.get("metadata") or {}).get("annotations") or {}).get(WRITTEN_BY_CERT_MANAGER):
                return read_issued(secret.get("data"))
            try:
                found = read_generation(secret.get("data"))
            except UnreadableSecret as error:
                self._log(f"{error}; it is written anew", WARNING)
                found = None
            if found is not None and not found.needs_renewal(self._now(), self._options.names):
                return found
            before = found.bundle if found is not None else b""
            fresh = make_generation(self._options.names, self._now(), self._options.lifetime, before)
            secret["data"] = {**(secret.get("data") or {}), **fresh.secret_data()}
            with suppress(Conflict):  # another replica was first
                await self._api.put(path, secret)
                return fresh
        raise UnreadableSecret("other writers keep changing the Secret")

    async def _write_bundle(self, generation: Generation) -> bool:
        """Write the bundle into the configuration; returns whether it had to be written."""
        if not self._options.configuration or not generation.bundle:
            return False
        path = f"{CONFIGURATIONS_PATH}/{self._options.configuration}"
        try:
            found = msgspec.json.decode(await self._api.get(path), type=dict[str, Any])
        except NotFound:
            self._log(f"MutatingWebhookConfiguration {self._options.configuration} is not there yet", WARNING)
            return False
        patch = bundle_patch(found.get("webhooks") or [], lambda current: self._wanted(generation, current))
        if patch:
            await self._api.patch(path, json.dumps(patch).encode(), "json")
        return bool(patch)

    def _wanted(self, generation: Generation, current: str) -> str:
        """The bundle for a webhook that has this one, both as base64."""
        if generation.is_ours:
            return base64.b64encode(generation.bundle).decode()
        try:
            there = base64.b64decode(current, validate=True)
        except ValueError:
            there = b""
        bundle = trusting(generation.bundle, there, self._now())
        return current if bundle == there else base64.b64encode(bundle).decode()
