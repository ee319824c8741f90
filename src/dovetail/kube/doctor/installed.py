"""Objects of an installation, typed: only the fields that the doctor reads."""

from __future__ import annotations

from msgspec import field

from dovetail.kube.objects.base import Meta, Struct, Texts
from dovetail.kube.objects.core import PodStatus


class ServiceReference(Struct, frozen=True):
    namespace: str = ""
    name: str = ""
    path: str = ""
    port: int = 443


class WebhookClient(Struct, frozen=True):
    url: str = ""
    service: ServiceReference | None = None
    ca_bundle: str = ""  # base64 of PEM


class Webhook(Struct, frozen=True):
    name: str = ""
    client_config: WebhookClient = WebhookClient()
    failure_policy: str = ""


class WebhookConfiguration(Struct, frozen=True):
    metadata: Meta
    webhooks: list[Webhook] = field(default_factory=list)


class EndpointConditions(Struct, frozen=True):
    ready: bool | None = None  # None = ready


class Endpoint(Struct, frozen=True):
    addresses: list[str] = field(default_factory=list)
    conditions: EndpointConditions = EndpointConditions()


class EndpointSlice(Struct, frozen=True):
    metadata: Meta
    endpoints: list[Endpoint] = field(default_factory=list)

    @property
    def is_ready(self) -> bool:
        return any(one.conditions.ready is not False for one in self.endpoints)


class PolicyBindingSpec(Struct, frozen=True):
    policy_name: str = ""
    validation_actions: list[str] = field(default_factory=list)


class PolicyBinding(Struct, frozen=True):
    metadata: Meta
    spec: PolicyBindingSpec = PolicyBindingSpec()


class PolicyRule(Struct, frozen=True):
    api_groups: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    verbs: list[str] = field(default_factory=list)
    resource_names: list[str] = field(default_factory=list)


class RoleObject(Struct, frozen=True):
    """A Role or a ClusterRole."""

    metadata: Meta
    rules: list[PolicyRule] = field(default_factory=list)


class RoleReference(Struct, frozen=True):
    kind: str = ""
    name: str = ""


class Subject(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class RoleBindingObject(Struct, frozen=True):
    """A RoleBinding or a ClusterRoleBinding."""

    metadata: Meta
    role_ref: RoleReference = RoleReference()
    subjects: list[Subject] = field(default_factory=list)


class ServedVersion(Struct, frozen=True):
    name: str = ""
    served: bool = True


class ResourceDefinitionSpec(Struct, frozen=True):
    group: str = ""
    versions: list[ServedVersion] = field(default_factory=list)


class ResourceDefinition(Struct, frozen=True):
    """A CustomResourceDefinition."""

    metadata: Meta
    spec: ResourceDefinitionSpec = ResourceDefinitionSpec()


class ConfigMapObject(Struct, frozen=True):
    metadata: Meta
    data: Texts = field(default_factory=dict)


class SchedulerContainer(Struct, frozen=True):
    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)


class SchedulerSpec(Struct, frozen=True):
    containers: list[SchedulerContainer] = field(default_factory=list)
    node_name: str = ""


class HamiSchedulerPod(Struct, frozen=True):
    """A pod of HAMi's scheduler: the flags that it was started with."""

    metadata: Meta
    spec: SchedulerSpec = SchedulerSpec()
    status: PodStatus = PodStatus()

    def flags(self) -> dict[str, str]:
        """The flags of all its containers: `--name=value`."""
        words = [word for one in self.spec.containers for word in (*one.command, *one.args)]
        pairs = [word.removeprefix("--").partition("=") for word in words if word.startswith("--")]
        return {name: value for name, _, value in pairs}
