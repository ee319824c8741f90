"""What the pods of one template have in common: a digest of all that decides a pod's request, and requests by digest.

Reading a spec costs more than placing the pod, and thousands of pods differ only in their names. So a request is read
once for each digest, for files and for a live cluster. The engine recognises shared parts by their identity.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from dovetail.kube.conversion.bounded import beyond_template
from dovetail.kube.conversion.forecasts import NETWORK_KEYS
from dovetail.kube.conversion.known_names import names_of
from dovetail.kube.conversion.plugins import written_by_plugins
from dovetail.kube.conversion.reading import NODE_LABEL, asked_by
from dovetail.kube.conversion.resize import resized
from dovetail.kube.conversion.seals import SEAL
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import Vendors
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.problems import Problem, Problems
from dovetail.model.pod import Pod

# Annotations that may change a request, beside those in the vendors' domains.
ANNOTATIONS = ("dovetail.dev/", "hami.io/")
# Results of scheduling, not requests.
ASSIGNED_TIME = "hami.io/vgpu-time"
PHASE, BIND_TIME = "hami.io/bind-phase", "hami.io/bind-time"
BOUND_BY = "dovetail.dev/bound-by"  # namespace/name of the Lease whose holder gave the pod its cards
EPOCH = "dovetail.dev/epoch"  # written on pods by a new leader (live/fencing.py)


class Reading(NamedTuple):
    """A value, and what is wrong with its source."""

    pod: Pod
    problems: tuple[Problem, ...]


_ENCODER = msgspec.msgpack.Encoder()


def encoded(what: object) -> bytes:
    """Bytes that differ where `what` differs."""
    try:
        return _ENCODER.encode(what)
    except OverflowError:  # a number beyond 64 bits, which a file can hold, and the API server's answers cannot
        return repr(what).encode(errors="backslashreplace")


class TemplateDigests:
    """Equal digests for pods with equal requests. Nothing that differs between replicas is in a digest."""

    def __init__(self, vendors: Vendors) -> None:
        rows = vendors.rows
        domains = {name.partition("/")[0] + "/" for row in rows for name in (row.count or row.memory,) if "/" in name}
        self._prefixes = (*ANNOTATIONS, *sorted(domains))
        self._names = names_of(vendors)
        # The same names are checked again and again.
        self._may_be_a_slip = lru_cache(maxsize=4_096)(self._names.may_be_a_slip)
        self._matters = lru_cache(maxsize=4_096)(self._may_change_a_request)
        self._written_by_plugins = written_by_plugins(vendors)
        given = (name for row in rows for name in (row.to_allocate, row.allocated) if name)
        self._results = frozenset((EPOCH, BOUND_BY, SEAL, NODE_LABEL, ASSIGNED_TIME, PHASE, BIND_TIME, *given))

    def digest(self, source: objects.Pod, passed_over: bool) -> bytes:
        """`passed_over`: HAMi's webhook ignored the pod."""
        spec, meta = source.spec, source.metadata
        claims = [volume for volume in spec.volumes if volume.persistent_volume_claim or volume.ephemeral]
        decides = (
            msgspec.structs.replace(spec, node_name="", volumes=claims),
            len(spec.volumes),
            sorted((key, value) for key, value in meta.annotations.items() if self._matters(key)),
            self._doubtful_names(meta),
            meta.namespace,
            meta.name if any(volume.ephemeral for volume in claims) else "",
            [(key, meta.labels.get(key)) for key in _labels_used(spec)],
            passed_over,
            resized(source.status),
            [str(one) for one in beyond_template(meta)],
        )
        return blake2b(encoded(decides), digest_size=20).digest()

    def _doubtful_names(self, meta: objects.Meta) -> list[str]:
        """Names that may cause a warning, although they do not change the request."""
        slips, names = self._may_be_a_slip, self._names
        odd = [key for key in meta.annotations if (slips(key) or key in names.labels) and not self._matters(key)]
        return odd + [key for key in meta.labels if slips(key) or key in names.not_for_labels]

    def _may_change_a_request(self, annotation: str) -> bool:
        if annotation in NETWORK_KEYS:
            return True
        if not annotation.startswith(self._prefixes) or annotation in self._results:
            return False
        return not self._written_by_plugins(annotation)


def _labels_used(spec: objects.PodSpec) -> list[str]:
    """The pod's own labels whose values its inter-pod rules use (matchLabelKeys)."""
    keys = {key for row in spec.topology_spread_constraints for key in row.match_label_keys}
    if spec.affinity is not None:
        for part in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity):
            for term in (*part.required, *(each.pod_affinity_term for each in part.preferred)) if part else ():
                keys.update(term.match_label_keys, term.mismatch_label_keys)
    return sorted(keys)


class SharedRequests:
    """The requests of the pods of one input, each read once. An input is bounded, so all are kept."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._digests = settings, TemplateDigests(settings.vendors)
        self._known: dict[tuple[bytes, bool], Reading] = {}

    def asked_by(self, source: objects.Pod, passed_over: bool, where: str, problems: Problems) -> Pod:
        """As reading.asked_by. What is wrong with a template is reported for each of its pods."""
        key = self._digests.digest(source, passed_over), problems.strict
        known = self._known.get(key)
        if known is None:
            own = Problems(problems.strict)
            pod = asked_by(source, passed_over, self._settings, where, own)
            known = self._known[key] = Reading(pod, own.found())
        for problem in known.problems:
            problems.repeat(problem, where)
        return known.pod
