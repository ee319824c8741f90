"""Which gang a pod belongs to, in which role, and what the pod itself says of the gang.

The first that a pod has counts: Kubernetes' own fields (KEP-4671), our annotation, labels of scheduler-plugins and
Koordinator, Koordinator's, Volcano's and KAI's annotations. Files and watches share this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from dovetail.kube.conversion.groups import (
    KAI_POD_GROUP,
    KOORDINATOR_NAME,
    LABELS,
    LEADER_WORKER_SETS,
    OWN_GANG,
    OWN_GANGS,
    VOLCANO,
    WORKLOADS,
    GroupName,
    not_together,
    together,
)
from dovetail.kube.conversion.times import duration_of
from dovetail.kube.conversion.topology_rules import GANG_RULES, ROLE_RULES, TopologyError, rule_of
from dovetail.kube.objects import core as objects
from dovetail.kube.objects.bounds import GANG_MEMBERS, GANG_NAME, GANG_ROLES, REQUEST_ANNOTATION
from dovetail.kube.objects.gangs import JOB_SET_GROUP, KUBERNETES
from dovetail.kube.objects.problems import printable
from dovetail.kube.objects.queues import KAI_GROUP, KOORDINATOR, VOLCANO_GROUP
from dovetail.model.gang import ANYWHERE, NO_TERMS, GangTerms, Role, TopologyRule
from dovetail.model.visible import visible_lines

OWN_SIZE, OWN_ROLE, OWN_ROLE_SIZE = f"{OWN_GANG}-size", f"{OWN_GANG}-role", f"{OWN_GANG}-role-size"
WHOLE_SET = "true"  # instead of a gang's name: the set, or the Job, that the pod belongs to
KOORDINATOR_PREFIX = "gang.scheduling.koordinator.sh/"
KOORDINATOR_MINIMUM, KOORDINATOR_WAIT = f"{KOORDINATOR_PREFIX}min-available", f"{KOORDINATOR_PREFIX}waiting-time"
KOORDINATOR_GROUPS = f"{KOORDINATOR_PREFIX}groups"
VOLCANO_TASK, KAI_SUB_GROUP = "volcano.sh/task-spec", "kai.scheduler/subgroup-name"
JOB_SET_NAME, JOB_SET_ROLE = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name"
LWS = "leaderworkerset.sigs.k8s.io/"
LWS_NAME, LWS_GROUP, LWS_WORKER, LWS_SIZE = f"{LWS}name", f"{LWS}group-index", f"{LWS}worker-index", f"{LWS}size"
LEADER, WORKER = "leader", "worker"
JOB_NAMES = ("batch.kubernetes.io/job-name", "job-name")  # the older label is still written
OWN_NAMES = (OWN_GANG, OWN_SIZE, OWN_ROLE, OWN_ROLE_SIZE, *ROLE_RULES, *GANG_RULES)
_OWN_NAMES = frozenset(OWN_NAMES)
KOORDINATOR_NAMES = tuple(f"{KOORDINATOR_PREFIX}{name}" for name in ("name", "min-available", "waiting-time", "groups"))


class Membership(NamedTuple):
    group: str = ""  # key of the gang; "" = none
    role: str = ""
    terms: GangTerms = NO_TERMS
    field: str = ""  # the annotation with which something is wrong
    wrong: str = ""  # why the pod is not placed; "" = it may be
    remark: str = ""  # what has no effect


class WrongTerms(ValueError):
    """What is wrong with an annotation. `key` is the annotation."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


NO_MEMBERSHIP = Membership()


def membership(meta: objects.Meta, spec: objects.PodSpec, namespace: str) -> Membership:
    """The pod's place in a gang. If an annotation is wrong, the gang is named and nothing else is read."""
    name = named_gang(meta, spec, namespace)
    if name is None:
        return _alone(meta.annotations)
    try:
        role = _role(name.api_group, meta)
        terms = _said(name, role, meta)
        if name.api_group == KOORDINATOR and (others := _partners(name, meta)):
            role, name = name.title, together(others)
        remark = f"is not used: {name} says how many start together" if _is_idle(name, meta.annotations) else ""
        return Membership(name.key, role, terms, f"metadata.annotations.{OWN_SIZE}" if remark else "", remark=remark)
    except (TopologyError, WrongTerms) as error:
        return Membership(name.key, field=f"metadata.annotations.{error.key}", wrong=f"{error.key}: {error}")


def _alone(annotations: Mapping[str, str]) -> Membership:
    """A pod that is in no gang. Annotations that need one have no effect."""
    if _OWN_NAMES.isdisjoint(annotations):
        return NO_MEMBERSHIP
    key = next((key for key in OWN_NAMES if annotations.get(key)), "")
    if not key:
        return NO_MEMBERSHIP
    if key == OWN_GANG:
        message = f"{key}: {WHOLE_SET!r} means the pod's JobSet, LeaderWorkerSet or Job, and it has none; write a name"
        return Membership(field=f"metadata.annotations.{key}", wrong=message)
    remark = f"has no effect without a gang; name one with {OWN_GANG} or a PodGroup"
    return Membership(field=f"metadata.annotations.{key}", remark=remark)


def _is_idle(name: GroupName, annotations: Mapping[str, str]) -> bool:
    return name.api_group != OWN_GANGS and bool(annotations.get(OWN_SIZE))


def named_gang(meta: objects.Meta, spec: objects.PodSpec, namespace: str) -> GroupName | None:
    """The gang that a pod names; None = none."""
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return GroupName(KUBERNETES, namespace, spec.scheduling_group.pod_group_name)
    ref = spec.workload_ref
    if ref is not None and ref.name:
        keys = (ref.name, ref.pod_group, ref.pod_group_replica_key)
        return GroupName(WORKLOADS, namespace, "/".join(key for key in keys if key))
    notes, labels = meta.annotations, meta.labels
    if notes.get(OWN_GANG):
        return _own(_cut(notes[OWN_GANG].strip()), labels, namespace)
    for label, api_group in LABELS.items():
        if labels.get(label):
            text = labels[label]
            return GroupName(api_group, namespace, not_together(text) if api_group == KOORDINATOR else text)
    if notes.get(KOORDINATOR_NAME):
        return GroupName(KOORDINATOR, namespace, _cut(_koordinator_name(notes)))
    for key, api_group in ((VOLCANO, VOLCANO_GROUP), (KAI_POD_GROUP, KAI_GROUP)):
        if notes.get(key):
            return GroupName(api_group, namespace, _cut(notes[key]))
    return None


def _own(text: str, labels: Mapping[str, str], namespace: str) -> GroupName | None:
    """The gang of our annotation: by name, or the set or Job whose labels the pod has."""
    if text.lower() != WHOLE_SET:
        return GroupName(OWN_GANGS, namespace, text) if text else None
    if labels.get(JOB_SET_NAME):
        return GroupName(JOB_SET_GROUP, namespace, labels[JOB_SET_NAME])
    if labels.get(LWS_NAME):
        return GroupName(LEADER_WORKER_SETS, namespace, f"{labels[LWS_NAME]}-{labels.get(LWS_GROUP, '')}")
    job = next((labels[label] for label in JOB_NAMES if labels.get(label)), "")
    return GroupName(OWN_GANGS, namespace, f"job-{job}") if job else None


def _cut(text: str) -> str:
    """A name as it is printed. A name that was cut matches no object."""
    return visible_lines(text)[: GANG_NAME.most + 1]


def _koordinator_name(notes: Mapping[str, str]) -> str:
    return not_together(notes.get(KOORDINATOR_NAME, ""))


def _role(api_group: str, meta: objects.Meta) -> str:
    notes, labels = meta.annotations, meta.labels
    if api_group == LEADER_WORKER_SETS:
        return LEADER if labels.get(LWS_WORKER) == "0" else WORKER
    if notes.get(OWN_ROLE):
        return _cut(notes[OWN_ROLE].strip())
    if api_group == VOLCANO_GROUP:
        return _cut(notes.get(VOLCANO_TASK, ""))
    if api_group == KAI_GROUP:
        return labels.get(KAI_SUB_GROUP, "")
    return labels.get(JOB_SET_ROLE, "") if api_group == JOB_SET_GROUP else ""


def _said(name: GroupName, role: str, meta: objects.Meta) -> GangTerms:
    """What the pod itself says. Raises TopologyError or WrongTerms."""
    notes = meta.annotations
    if name.api_group == LEADER_WORKER_SETS:
        return _leader_worker_set(notes)
    if name.api_group == KOORDINATOR and _koordinator_name(notes) == name.name:
        return _koordinator(name, notes)
    size = _number(notes, OWN_SIZE) if name.api_group == OWN_GANGS else 0
    if name.api_group == OWN_GANGS and not size:
        raise WrongTerms(OWN_SIZE, "is missing; write how many pods of the gang start together")
    return _terms(size, role, _number(notes, OWN_ROLE_SIZE), *_rules(role, notes))


def _rules(role: str, notes: Mapping[str, str]) -> tuple[TopologyRule, TopologyRule]:
    """The rule of the whole gang, and that of the pod's role."""
    own = rule_of(notes, ROLE_RULES)
    whole = rule_of(notes, GANG_RULES)
    if role:
        return whole, own
    if whole != ANYWHERE and own != ANYWHERE:
        raise WrongTerms(GANG_RULES[0], f"is the same as {ROLE_RULES[0]} for a pod without a role; keep one")
    return own if whole == ANYWHERE else whole, ANYWHERE


@lru_cache(maxsize=4_096)  # the pods of a gang share their terms
def _terms(size: int, role: str, role_size: int, whole: TopologyRule, own: TopologyRule) -> GangTerms:
    if role_size and not role:
        raise WrongTerms(OWN_ROLE_SIZE, f"has no effect without {OWN_ROLE}; write the role's name there")
    roles = (Role(role, role_size, own),) if role_size or own != ANYWHERE else ()
    return GangTerms(size, roles, whole) if size or roles or whole != ANYWHERE else NO_TERMS


@lru_cache(maxsize=1_024)
def _of_set(size: int, whole: TopologyRule) -> GangTerms:
    roles = (Role(LEADER, 1), Role(WORKER, size - 1)) if size > 1 else (Role(LEADER, 1),)
    return GangTerms(size, roles, whole)


def _leader_worker_set(notes: Mapping[str, str]) -> GangTerms:
    """One group of a LeaderWorkerSet: its controller writes the size on each pod."""
    size = _number(notes, LWS_SIZE)
    if not size:
        raise WrongTerms(LWS_SIZE, "is missing; the LeaderWorkerSet controller writes it on its pods")
    return _of_set(size, rule_of(notes, ROLE_RULES))


def _koordinator(name: GroupName, notes: Mapping[str, str]) -> GangTerms:
    """Koordinator's gang without a PodGroup. Where there is one, it counts."""
    minimum, wait = _number(notes, KOORDINATOR_MINIMUM), notes.get(KOORDINATOR_WAIT, "")
    seconds = duration_of(wait) if wait else None
    if wait and seconds is None:
        raise WrongTerms(KOORDINATOR_WAIT, f"{printable(wait, 40)!r} is no duration; write one such as 30s or 10m")
    return _of_koordinator(minimum, seconds, name.title if _partners_text(notes) else "", rule_of(notes, ROLE_RULES))


@lru_cache(maxsize=1_024)
def _of_koordinator(minimum: int, seconds: float | None, part: str, whole: TopologyRule) -> GangTerms:
    """`part`: its name among gangs that start together; "" = it starts by itself."""
    if part:
        return GangTerms(0, (Role(part, minimum, whole),) if minimum else (), time_limit=seconds)
    return GangTerms(minimum, (), whole, seconds)


def _partners_text(notes: Mapping[str, str]) -> str:
    return notes.get(KOORDINATOR_GROUPS, "").strip()


def _partners(name: GroupName, meta: objects.Meta) -> tuple[GroupName, ...]:
    """The gangs that start together with this one, of a pod without a PodGroup; () = it starts by itself."""
    if _koordinator_name(meta.annotations) != name.name:
        return ()
    return partners_of(name, meta.annotations)


def partners_of(name: GroupName, notes: Mapping[str, str]) -> tuple[GroupName, ...]:
    """The gangs in Koordinator's annotation on a pod or a PodGroup; () = it starts by itself. Raises WrongTerms."""
    text = _partners_text(notes)
    if not text:
        return ()
    if len(text) > REQUEST_ANNOTATION.most:
        raise WrongTerms(KOORDINATOR_GROUPS, REQUEST_ANNOTATION.exceeded(len(text)))
    try:
        titles = msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, RecursionError):
        titles = []
    names = {GroupName(KOORDINATOR, *title.split("/")) for title in titles if _is_title(title)}
    if not titles or len(names) != len(set(titles)):
        example = f'["{name.title}", "{name.namespace}/other"]'
        raise WrongTerms(
            KOORDINATOR_GROUPS, f"{printable(text, 60)!r} is no list of gangs; write JSON such as {example}"
        )
    if len(names) > GANG_ROLES.most:
        raise WrongTerms(KOORDINATOR_GROUPS, GANG_ROLES.exceeded(len(names)))
    if name not in names:
        raise WrongTerms(KOORDINATOR_GROUPS, f"does not name {name.title} itself; add it")
    return tuple(names) if len(names) > 1 else ()


def _is_title(text: str) -> bool:
    namespace, slash, name = text.partition("/")
    plain = text.isascii() and text.replace("/", "").replace("-", "").replace(".", "").isalnum()
    return plain and bool(slash and namespace and name) and "/" not in name and len(text) <= GANG_NAME.most


def _number(notes: Mapping[str, str], key: str) -> int:
    """The number of pods in an annotation; 0 = it is not there. Raises WrongTerms."""
    text = notes.get(key, "").strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise WrongTerms(key, f'{printable(text, 40)!r} is no number of pods; write one such as "4"')
    if int(text) > GANG_MEMBERS.most:
        raise WrongTerms(key, GANG_MEMBERS.exceeded(int(text)))
    return int(text)
