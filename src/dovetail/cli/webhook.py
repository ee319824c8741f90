"""Runs the admission webhook for the command line: beside the scheduler, or alone."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dovetail import __version__
from dovetail.cli.errors import Refused
from dovetail.cli.options import ClusterOptions
from dovetail.cli.output.logs import Logger
from dovetail.cli.settings import scheduler_profiles, settle, with_vendors
from dovetail.cli.webhook_options import DEFAULT_WEBHOOK_NAME, WebhookAsked
from dovetail.config import Config
from dovetail.kube.admission.configuration import webhook_configuration
from dovetail.kube.admission.webhook import KnownCluster, PodWebhook, WebhookOptions
from dovetail.kube.api.auth import Credentials
from dovetail.kube.api.client import Api
from dovetail.kube.api.errors import ApiError
from dovetail.kube.api.kubeconfig import KubeconfigError, find
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.metrics.text import CONTENT_TYPE, render
from dovetail.kube.live.metrics.webhook import webhook_metrics
from dovetail.kube.live.port import HttpPort, PortAnswer, PortRequest
from dovetail.kube.log import ERROR, INFO, WARNING, Level, Log
from dovetail.kube.objects.problems import InputError, Problems
from dovetail.web.certificates import BadCertificate, Certificate, CertificateFiles
from dovetail.web.own_certificate import OwnCertificate, OwnCertificateOptions
from dovetail.web.serving import WebServer
from dovetail.web.webhook import WEBHOOK_LIMITS, WEBHOOK_PATH, webhook_routes

STOPPED, NOT_STARTED = 0, 1
DEFAULT_NAME = "dovetail"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DNS_NAME = re.compile(rf"(?=.{{1,253}}\Z){_DNS_LABEL}(\.{_DNS_LABEL})*")


@dataclass(frozen=True, slots=True)
class AloneOptions:
    """The options of `dovetail webhook`."""

    asked: ClusterOptions
    webhook: WebhookAsked
    names: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    context: str | None = None
    json_logs: bool = False
    log_level: str = "info"
    listen: str = ""  # where /metrics is served; "" = nowhere
    problems: Problems = field(default_factory=Problems)


def address(text: str, option: str, example: str) -> tuple[str, int]:
    """Host and port. Raises Refused."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise Refused(f"{option}: {text!r} is not HOST:PORT, such as {example}")
    return host.strip("[]"), int(port)


def check_names(asked: WebhookAsked, scheduler_names: Iterable[str] = ()) -> None:
    """The names of the options, before anything is printed or asked of a cluster. Raises Refused."""
    for name in scheduler_names:  # Kubernetes takes any text as a pod's schedulerName
        if not name.isprintable() or not name or " " in name:
            raise Refused(f"--scheduler-name: {name!r} is empty or has spaces: write a name, such as dovetail")
    given = [("--webhook-service", asked.webhook_service)]
    if asked.webhook_configuration:  # empty = none
        given.append(("--webhook-configuration", asked.webhook_configuration))
    for option, name in given:
        if not _DNS_NAME.fullmatch(name):
            raise Refused(
                f"{option}: {name!r} is not a DNS name: lower-case letters, digits, '-' and '.', such as dovetail"
            )


def pod_webhook(
    asked: WebhookAsked, profiles: Mapping[str, Settings], cluster: KnownCluster | None = None
) -> PodWebhook:
    """The webhook for these scheduler names; pods get the first one."""
    options = WebhookOptions(
        next(name for name in profiles if name != "default-scheduler" or len(profiles) == 1),
        profiles,
        asked.force_overwrite_default_scheduler,
        asked.webhook_strict,
        asked.left_alone,
    )
    return PodWebhook(options, cluster)


def certificate_of(asked: WebhookAsked, api: Api | None, log: Log) -> Certificate:
    """The certificate, of files or our own. Raises Refused."""
    if asked.webhook_secret and (asked.cert_file or asked.key_file):
        raise Refused("--webhook-secret and --webhook-cert-file exclude each other; give one of them")
    if asked.webhook_secret:
        namespace, _, name = asked.webhook_secret.partition("/")
        if not namespace or not name or "/" in name:
            raise Refused(f"--webhook-secret: {asked.webhook_secret!r} is not NAMESPACE/NAME")
        assert api is not None
        service = f"{asked.webhook_service}.{namespace}.svc"
        names = (service, f"{service}.cluster.local", "localhost")
        return OwnCertificate(api, OwnCertificateOptions(namespace, name, names, asked.webhook_configuration), log)
    if not (asked.cert_file and asked.key_file):
        raise Refused(
            "--webhook-listen: the API server asks over TLS only; give --webhook-cert-file and --webhook-key-file, or"
            " --webhook-secret"
        )
    try:
        return CertificateFiles(Path(asked.cert_file), Path(asked.key_file))
    except BadCertificate as error:
        raise Refused(f"--webhook-cert-file: {error}") from error


@asynccontextmanager
async def serving_webhook(
    asked: WebhookAsked, webhook: PodWebhook, api: Api | None, log: Log, ready: Callable[[], str] = lambda: ""
) -> AsyncIterator[WebServer | None]:
    """Serve while the block runs. Without --webhook-listen nothing is served. Raises Refused."""
    if not asked.webhook_listen:
        yield None
        return
    host, port = address(asked.webhook_listen, "--webhook-listen", "0.0.0.0:9443")
    certificate = certificate_of(asked, api, log)
    if isinstance(certificate, OwnCertificate):
        await certificate.look()
    server = WebServer(webhook_routes(webhook, ready), log, certificate=certificate, limits=WEBHOOK_LIMITS)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(server.listening(host, port))
        except OSError as error:
            raise Refused(f"--webhook-listen {asked.webhook_listen}: {error.strerror or error}") from error
        log(f"the webhook is on https://{asked.webhook_listen}{WEBHOOK_PATH}")
        yield server


def configuration_text(asked: ClusterOptions, webhook: WebhookAsked) -> str:
    """The MutatingWebhookConfiguration for these options, as YAML. Raises Refused."""
    import yaml

    problems = Problems()
    try:
        config, settings = settle(asked, problems)
        settings = with_vendors(settings, asked.device_config or config.device_config, problems)
    except InputError as error:
        raise Refused(*(str(problem) for problem in error.problems)) from error
    namespace = webhook.webhook_secret.partition("/")[0] or "kube-system"
    service = {"namespace": namespace, "name": webhook.webhook_service, "port": 443, "path": WEBHOOK_PATH}
    made = webhook_configuration(
        webhook.webhook_configuration or DEFAULT_WEBHOOK_NAME,
        {"service": service},
        settings.vendors,
        exempt_namespaces=webhook.left_alone,
    )
    return yaml.safe_dump(made, sort_keys=False, width=110).rstrip("\n")


def profiles_alone(config: Config, settings: Settings, asked: AloneOptions) -> dict[str, Settings]:
    """Scheduler name -> settings. Pods get the first name: the command line's, if it has one."""
    names = asked.names or (() if config.schedulers else (DEFAULT_NAME,))
    found = scheduler_profiles(config, settings, names, str(asked.asked.config))
    return {name: found[name] for name in (*names, *found)}


def run_alone(asked: AloneOptions) -> int:
    log = Logger(Level[asked.log_level.upper()], as_json=asked.json_logs)
    problems = asked.problems
    try:
        config, settings = settle(asked.asked, problems)
        settings = with_vendors(settings, asked.asked.device_config or config.device_config, problems)
        profiles = profiles_alone(config, settings, asked)
        wants_api = bool(asked.webhook.webhook_secret)
        connection = find(os.environ, kubeconfig=asked.kubeconfig, context=asked.context) if wants_api else None
    except InputError as error:
        raise Refused(*(str(problem) for problem in error.problems)) from error
    except KubeconfigError as error:
        raise Refused(str(error)) from error
    for problem in problems.found():
        log(str(problem), INFO if problem.severity == "note" else WARNING, object=problem.where, field=problem.field)
    credentials = Credentials(connection, environ=os.environ) if connection is not None else None
    try:
        return asyncio.run(_serve_alone(asked, profiles, credentials, log))
    except (ApiError, KubeconfigError) as error:
        log(str(error), ERROR)
        return NOT_STARTED


@asynccontextmanager
async def serving_metrics(listen: str, webhook: PodWebhook, log: Log) -> AsyncIterator[None]:
    """Serve /metrics of a webhook that runs alone, while the block runs. Raises Refused."""
    if not listen:
        yield
        return
    host, port = address(listen, "--listen", "0.0.0.0:9396")

    async def metrics(asked: PortRequest) -> PortAnswer:
        page = {"dovetail_build_info": {(__version__,): 1}, **webhook_metrics(webhook.counts)}
        return PortAnswer(render(page), kind=CONTENT_TYPE)

    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(HttpPort({"/metrics": metrics}).listening(host, port))
        except OSError as error:
            raise Refused(f"--listen {listen}: {error.strerror or error}") from error
        log(f"metrics on {listen}")
        yield


async def _serve_alone(
    asked: AloneOptions, profiles: Mapping[str, Settings], credentials: Credentials | None, log: Logger
) -> int:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(credentials)) if credentials is not None else None
        webhook = pod_webhook(asked.webhook, profiles)
        await stack.enter_async_context(serving_metrics(asked.listen, webhook, log))
        await stack.enter_async_context(serving_webhook(asked.webhook, webhook, api, log))
        log("it runs alone: it knows no nodes and no quotas, and looks at the pod only")
        await over.wait()
    log("stopped")
    log.flush()
    return STOPPED
