"""Objects of operators that create pods: their pod templates, and how many pods each template gives.

There is one function for each kind, from the object as it was read. If the object alone does not determine its pods, it
is reported as not placed. So is an object of an unknown kind that contains a pod template.
"""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from dovetail.kube.objects.problems import printable

MOST_REPLICAS = 100_000  # of one template
MAX_TEMPLATES = 1_000  # templates of one object
MAX_PARTS_SEARCHED = 20_000  # parts of an object of an unknown kind that are searched
SLIP = 0.9  # of two names, by difflib: `replica` and `replicas` are 0.93, `minReplicas` and `replicas` 0.84
Json = Mapping[str, Any]


class NotPlain(ValueError):
    """Why the pods of the object cannot be determined."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods made from one template."""

    stem: str  # part of their names after the object's own: "worker" gives "job-worker-0"; "" = none
    count: int
    template: Json
    path: str  # of the template
    in_group: int = 0  # of a LeaderWorkerSet: how many of these pods are in each group; 0 = there are no groups
    group_size: int = 0  # and how many pods of all sets

    @property
    def spec_path(self) -> str:
        return f"{self.path}.spec" if self.path.endswith("emplate") else self.path


@dataclass(frozen=True, slots=True)
class Expanded:
    """The pods that an object creates."""

    sets: tuple[PodSet, ...] = ()
    minimum: int | None = None  # pods placed together or not at all, where its controller creates a PodGroup
    rests: str = ""  # the field because of which it creates none at present
    queue: str = ""  # the Volcano Queue that its controller names in its pods
    tasks: Mapping[str, int] = field(default_factory=dict)  # minimums of tasks in that PodGroup
    network_topology: Json = field(default_factory=dict)  # of that PodGroup


@dataclass(frozen=True, slots=True)
class _At:
    """A part of the object and its path."""

    value: Any
    path: str = ""

    def get(self, *keys: str) -> _At:
        at = self
        for key in keys:
            at = _At(at._value(key), f"{at.path}.{key}" if at.path else key)
        return at

    def _value(self, key: str) -> Any:
        """The value of the key.

        A key that resembles this one counts as misspelt: using a default instead would be wrong.
        """
        if not isinstance(self.value, Mapping):
            return None
        if key in self.value:
            return self.value[key]
        close = difflib.get_close_matches(key, [str(one)[:60] for one in islice(self.value, 100)], n=1, cutoff=SLIP)
        if close:
            path = f"{self.path}.{close[0]}" if self.path else close[0]
            raise NotPlain(f"{printable(path)} is no field of it; did you mean {key}?")
        return None

    def mapping(self) -> Json:
        if not isinstance(self.value, Mapping):
            raise NotPlain(f"{self.path} {'is missing' if self.value is None else 'is no mapping'}")
        return self.value

    def items(self) -> list[_At]:
        if not isinstance(self.value, list) or len(self.value) > MAX_TEMPLATES:
            raise NotPlain(f"{self.path} {'is missing' if self.value is None else 'is no short list'}")
        return [_At(part, f"{self.path}[{number}]") for number, part in enumerate(self.value)]

    def number(self, default: int) -> int:
        if self.value is None:
            return default
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not 0 <= self.value <= MOST_REPLICAS:
            raise NotPlain(f"{self.path} is not a number between 0 and {MOST_REPLICAS:,}")
        return self.value

    def text(self, default: str) -> str:
        return self.value if isinstance(self.value, str) and self.value else default

    def is_true(self) -> bool:
        return self.value is True

    def pods(self, stem: str, count: int) -> PodSet:
        """This part as a pod template."""
        spec = self.get("spec")
        if not isinstance(spec.mapping().get("containers"), list):
            raise NotPlain(f"{spec.path}.containers is missing")
        if count > MOST_REPLICAS:
            raise NotPlain(f"{count:,} pods are more than {MOST_REPLICAS:,}")
        return PodSet(printable(stem, 60), count, self.mapping(), self.path)


def _replica_specs(key: str) -> Callable[[_At], Expanded]:
    """Kubeflow's training jobs: spec.<key>.<type>.{replicas, template}."""

    def expand(body: _At) -> Expanded:
        if body.get("spec", "runPolicy", "suspend").is_true():
            return Expanded(rests="spec.runPolicy.suspend")
        specs = body.get("spec", key)
        if len(specs.mapping()) > MAX_TEMPLATES:
            raise NotPlain(f"{specs.path} has too many types")
        return Expanded(
            tuple(
                specs.get(name, "template").pods(name.lower(), specs.get(name, "replicas").number(1))
                for name in sorted(map(str, specs.mapping()))
            )
        )

    return expand


def _volcano(body: _At) -> Expanded:
    """Volcano's Job. Its controller creates a PodGroup with minimum spec.minAvailable, by default all pods."""
    tasks = body.get("spec", "tasks").items()
    sets = tuple(
        task.get("template").pods(task.get("name").text(f"default{number}"), task.get("replicas").number(1))
        for number, task in enumerate(tasks)
    )
    minimum = body.get("spec", "minAvailable").number(sum(one.count for one in sets))
    least = {one.stem: task.get("minAvailable").number(one.count) for one, task in zip(sets, tasks, strict=True)}
    topology = body.get("spec", "networkTopology").value
    queue = body.get("spec", "queue").text("default")
    return Expanded(sets, minimum, "", queue, least, topology if isinstance(topology, Mapping) else {})


def _job_set(body: _At) -> Expanded:
    if body.get("spec", "suspend").is_true():
        return Expanded(rests="spec.suspend")
    sets = []
    for number, part in enumerate(body.get("spec", "replicatedJobs").items()):
        job = part.get("template", "spec")
        pods = min(job.get("parallelism").number(1), job.get("completions").number(MOST_REPLICAS))
        name, replicas = part.get("name").text(str(number)), part.get("replicas").number(1)
        sets.append(job.get("template").pods(name, replicas * pods))
    return Expanded(tuple(sets))


def _leader_worker_set(body: _At) -> Expanded:
    spec = body.get("spec")
    made = spec.get("leaderWorkerTemplate")
    groups, size = spec.get("replicas").number(1), made.get("size").number(1)
    worker = made.get("workerTemplate")
    leader = made.get("leaderTemplate") if made.get("leaderTemplate").value is not None else worker
    if groups * size > MOST_REPLICAS:
        raise NotPlain(f"{groups * size:,} pods are more than {MOST_REPLICAS:,}")
    leaders = replace(leader.pods("", groups), in_group=1, group_size=size)
    if size < 2:
        return Expanded((leaders,))
    workers = worker.pods("worker", groups * (size - 1))
    return Expanded((leaders, replace(workers, in_group=size - 1, group_size=size)))


def _ray_cluster(*path: str) -> Callable[[_At], Expanded]:
    """A Ray cluster. `path`: the path of the cluster's spec."""

    def expand(body: _At) -> Expanded:
        if body.get("spec", "suspend").is_true():
            return Expanded(rests="spec.suspend")
        cluster = body.get(*path)
        sets = [cluster.get("headGroupSpec", "template").pods("head", 1)]
        groups = cluster.get("workerGroupSpecs")
        for number, group in enumerate(groups.items() if groups.value is not None else ()):
            least, most = group.get("minReplicas").number(0), group.get("maxReplicas").number(MOST_REPLICAS)
            hosts = group.get("numOfHosts").number(1)
            count = max(least, min(group.get("replicas").number(least), most)) * hosts
            sets.append(group.get("template").pods(group.get("groupName").text(f"workers{number}"), count))
        return Expanded(tuple(sets))

    return expand


def _replicas(body: _At) -> Expanded:
    """An object in the form of a Deployment."""
    return Expanded((body.get("spec", "template").pods("", body.get("spec", "replicas").number(1)),))


def _notebook(body: _At) -> Expanded:
    if body.get("metadata", "annotations", "kubeflow-resource-stopped").value:
        return Expanded(rests="metadata.annotations.kubeflow-resource-stopped")
    return Expanded((body.get("spec", "template").pods("", 1),))


def _knative(body: _At) -> Expanded:
    """A Knative Service: one pod at first, or as many as min-scale says."""
    template = body.get("spec", "template")
    scale = template.get("metadata", "annotations", "autoscaling.knative.dev/min-scale").text("1")
    count = int(scale) if scale.isascii() and scale.isdigit() and len(scale) < 6 else 1
    return Expanded((template.pods("", max(count, 1)),))


def _inference_service(body: _At) -> Expanded:
    """A KServe InferenceService with containers of its own.

    For a model, a ServingRuntime, which is another object, determines the pod.
    """
    predictor = body.get("spec", "predictor")
    if not isinstance(predictor.mapping().get("containers"), list):
        raise NotPlain("its pods come from a ServingRuntime, which the object does not state")
    handed_on = {key: body.get("metadata", key).value for key in ("annotations", "labels")}
    handed_on = {key: value for key, value in handed_on.items() if value is not None}
    template = {"metadata": handed_on, "spec": predictor.mapping()}
    count = predictor.get("minReplicas").number(1)
    return Expanded((PodSet("predictor", count, template, "spec.predictor"),))


# (API group, kind) -> its pods
EXPANDABLE: dict[tuple[str, str], Callable[[_At], Expanded]] = {
    **{
        ("kubeflow.org", kind): _replica_specs(key)
        for kind, key in (
            ("PyTorchJob", "pytorchReplicaSpecs"),
            ("TFJob", "tfReplicaSpecs"),
            ("MPIJob", "mpiReplicaSpecs"),
            ("PaddleJob", "paddleReplicaSpecs"),
            ("XGBoostJob", "xgbReplicaSpecs"),
            ("JAXJob", "jaxReplicaSpecs"),
        )
    },
    ("kubeflow.org", "Notebook"): _notebook,
    ("batch.volcano.sh", "Job"): _volcano,
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("ray.io", "RayCluster"): _ray_cluster("spec"),
    ("ray.io", "RayJob"): _ray_cluster("spec", "rayClusterSpec"),
    ("ray.io", "RayService"): _ray_cluster("spec", "rayClusterConfig"),
    ("argoproj.io", "Rollout"): _replicas,
    ("apps.kruise.io", "CloneSet"): _replicas,
    ("apps.kruise.io", "StatefulSet"): _replicas,
    ("serving.knative.dev", "Service"): _knative,
    ("serving.kserve.io", "InferenceService"): _inference_service,
}
# Kinds whose pods only their controller can determine.
OPAQUE: dict[tuple[str, str], str] = {
    ("trainer.kubeflow.org", "TrainJob"): "its pods come from a TrainingRuntime, which the object does not state",
    ("serving.kserve.io", "LLMInferenceService"): "its pods come from a configuration, which the object does not state",
    ("sparkoperator.k8s.io", "SparkApplication"): "the driver asks for executors when it runs",
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): "the driver asks for executors when it runs",
    ("argoproj.io", "Workflow"): "its pods follow one another as the steps of the workflow end",
    ("argoproj.io", "CronWorkflow"): "its pods follow one another as the steps of the workflow end",
    ("tekton.dev", "PipelineRun"): "its pods follow one another as the tasks end",
    ("tekton.dev", "TaskRun"): "its pod comes from a Task",
    ("flink.apache.org", "FlinkDeployment"): "the job manager asks for task managers when it runs",
    ("apps.nvidia.com", "NIMService"): "its pods are made by NVIDIA's NIM operator",
    ("nvidia.com", "DynamoGraphDeployment"): "its pods are made by NVIDIA's Dynamo operator",
}
# Kinds that contain pod templates for other objects and create no pods themselves.
TEMPLATES_ONLY = frozenset(
    (
        *(("argoproj.io", kind) for kind in ("WorkflowTemplate", "ClusterWorkflowTemplate")),
        *(("trainer.kubeflow.org", kind) for kind in ("TrainingRuntime", "ClusterTrainingRuntime")),
        *(("serving.kserve.io", kind) for kind in ("ServingRuntime", "ClusterServingRuntime")),
        *(("tekton.dev", kind) for kind in ("Task", "ClusterTask", "Pipeline", "StepAction")),
    )
)
FINISHED = frozenset(("Succeeded", "Failed", "Complete", "Completed", "Finished", "Terminated", "Aborted"))


def makes_pods(group: str, kind: str) -> bool:
    return (group, kind) in EXPANDABLE or (group, kind) in OPAQUE


def expanded(group: str, kind: str, body: Json) -> Expanded:
    """The pods that an object of these kinds creates.

    Raises NotPlain where the object alone does not determine them.
    """
    if (group, kind) in OPAQUE:
        raise NotPlain(OPAQUE[group, kind])
    if _is_finished(_At(body).get("status")):
        return Expanded(rests="status")
    return EXPANDABLE[group, kind](_At(body))


def _is_finished(status: _At) -> bool:
    conditions = status.get("conditions").value
    for one in conditions[:MAX_TEMPLATES] if isinstance(conditions, list) else ():
        if isinstance(one, Mapping) and one.get("type") in FINISHED and one.get("status") == "True":
            return True
    phases = (status.get("state", "phase").value, status.get("jobDeploymentStatus").value)
    return any(isinstance(phase, str) and phase in FINISHED for phase in phases)


def template_in(body: Json) -> str:
    """The path of a pod template inside an object of any kind; "" = there is none."""
    queue = deque([_At(body)])
    for _ in range(MAX_PARTS_SEARCHED):
        if not queue:
            break
        at = queue.popleft()
        if isinstance(at.value, Mapping) and _has_containers(at.value):
            return at.path
        inner = at.value.items() if isinstance(at.value, Mapping) else ((None, part) for part in at.value)
        for number, (key, value) in enumerate(islice(inner, MAX_PARTS_SEARCHED)):
            if isinstance(value, (Mapping, list)):
                step = f"[{number}]" if key is None else f".{printable(str(key))}"
                queue.append(_At(value, f"{at.path}{step}".lstrip(".")))
    return ""


def _has_containers(value: Json) -> bool:
    containers = value.get("containers")
    first = containers[0] if isinstance(containers, list) and containers else None
    return isinstance(first, Mapping) and "name" in first and ("image" in first or "resources" in first)
