"""How a pod is to be placed: by our annotations, else HAMi's, else the default. A wrong name is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dovetail.kube.conversion.register import MAX_CARD_NUMBER
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import Vendor
from dovetail.kube.objects.bounds import POLICY_CHAIN
from dovetail.kube.objects.problems import Problems, printable
from dovetail.model.pod import DeviceAsk, Profile

NODE_POLICY_KEYS = ("dovetail.dev/node-policy", "hami.io/node-scheduler-policy")  # the first one set wins
DEVICE_POLICY_KEYS = ("dovetail.dev/gpu-policy", "hami.io/gpu-scheduler-policy")
WEIGHTS_KEY = "hami.io/device-scoring-weights"
WEIGHT_NAMES = ("slot", "core", "memory")
LONGEST_CHAIN = POLICY_CHAIN.most


class PolicyError(ValueError):
    """The text names no policy, or no valid weights."""


def profile_of(
    annotations: Mapping[str, str], default: Profile, settings: Settings, where: str, problems: Problems
) -> tuple[Profile, str]:
    """The profile, and what is wrong with it ("" = nothing). HAMi would silently use its default.

    If the pod names a node policy, nothing of the profile for pods without devices is added to it.
    """
    if _first(annotations, NODE_POLICY_KEYS)[1]:
        default = settings.profile
    node, device, weights = default.node, default.device, default.weights
    key = ""
    try:
        key, text = _first(annotations, NODE_POLICY_KEYS)
        if text:
            node = parse_node_policy(text, settings.node_policies)
        key, text = _first(annotations, DEVICE_POLICY_KEYS)
        if text:
            device = parse_device_policy(text, settings.device_policies)
            if node in settings.joint_policies:
                problems.warning(where, f"metadata.annotations.{key}", not_used(node))
        key, text = WEIGHTS_KEY, annotations.get(WEIGHTS_KEY, "").strip()
        if text:
            weights = parse_weights(text)
    except PolicyError as error:
        problems.error(where, f"metadata.annotations.{key}", str(error))
        return default, f"{key}: {error}"
    return replace(default, node=node, device=device, weights=weights), ""


def plugin_profile(
    annotations: Mapping[str, str],
    default: Profile,
    asks: Sequence[DeviceAsk],
    settings: Settings,
    where: str,
    problems: Problems,
) -> tuple[Profile, Profile, str]:
    """As `profile_of`, for a pod with these asks, which may be for cards of a plugin; and the default for such pods."""
    asked = [settings.vendors.by_word[ask.vendor] for ask in asks]
    default = _with_plugin_policies(default, asked, settings)
    profile, complaint = profile_of(annotations, default, settings, where, problems)
    return _as_plugin_chooses(profile, default, asked, settings, where, problems), default, complaint


def _with_plugin_policies(default: Profile, asked: Sequence[Vendor], settings: Settings) -> Profile:
    """The profile with the policies of the plugin whose cards the pod asks for first, as its own scheduler has them."""
    row = next((row for row in asked if row.device_policy in settings.device_policies), None)
    if row is None:
        return default
    node = row.node_policy if row.node_policy in settings.node_policies else default.node
    return replace(default, node=node, device=(row.device_policy,))


def _as_plugin_chooses(
    profile: Profile, default: Profile, asked: Sequence[Vendor], settings: Settings, where: str, problems: Problems
) -> Profile:
    """The profile, with the GPU policy that the node's plugin has itself, if it refuses every other choice."""
    row = next((row for row in asked if row.chooses_itself), None)
    joint = profile.node in settings.joint_policies
    if row is None or (profile.device == default.device and not joint):
        return profile
    key = _first({}, NODE_POLICY_KEYS if joint else DEVICE_POLICY_KEYS)[0]
    text = f"not used: {row.plugin} refuses a card that its own policy {row.device_policy} would not choose"
    problems.warning(where, f"metadata.annotations.{key}", text)
    return replace(profile, node=default.node if joint else profile.node, device=default.device)


def why_not_allowed(profile: Profile, default: Profile, settings: Settings) -> str:
    """Why a pod may not have the profile that it names; "" = it may. The default is always allowed."""
    allowed = settings.allowed_policies
    if allowed is None:
        return ""
    named = [profile.node] if profile.node not in (default.node, settings.profile.node) else []
    named += profile.device if profile.device != default.device else ()
    wrong = sorted({name for name in named if name not in allowed})
    if not wrong:
        return ""
    instead = f"write one of {', '.join(sorted(allowed))}" if allowed else "remove the annotation"
    return f"the policy {', '.join(wrong)} is not allowed on this cluster; {instead}"


def not_used(joint: str) -> str:
    """What happens to a GPU policy beside a joint node policy."""
    return f"not used: the node policy {joint} chooses the GPUs itself"


def _first(annotations: Mapping[str, str], keys: tuple[str, ...]) -> tuple[str, str]:
    for key in keys:
        text = annotations.get(key, "").strip()
        if text:
            return key, text
    return keys[0], ""


def parse_node_policy(text: str, known: frozenset[str]) -> str:
    if text not in known:
        raise PolicyError(f"{printable(text, 60)!r} is no node policy; write one of {', '.join(sorted(known))}")
    return text


def parse_device_policy(text: str, known: frozenset[str]) -> tuple[str, ...]:
    """A chain such as `binpack,numa`: at most four different names."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in known:
            raise PolicyError(f"{printable(name, 60)!r} is no GPU policy; write one of {', '.join(sorted(known))}")
    if len(set(names)) != len(names):
        raise PolicyError(f"{printable(text, 60)!r} names a policy twice")
    if len(names) > LONGEST_CHAIN:
        raise PolicyError(f"{printable(text, 60)!r} chains more than {LONGEST_CHAIN} policies")
    return names


def parse_weights(text: str) -> tuple[int, int, int]:
    """The weights: `slot=1,core=1,memory=3`. All three are needed, as integers, not negative, not all 0.

    As in HAMi's pkg/util/device_scoring_weights.go.
    """
    wanted = "write slot=1,core=1,memory=1 with whole numbers ≥ 0, at least one of them positive"
    given: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        digits = value.isascii() and value.isdigit() and len(value) < 11
        if name not in WEIGHT_NAMES or name in given or not digits or int(value) > MAX_CARD_NUMBER:
            raise PolicyError(f"{printable(text, 60)!r} are no weights; {wanted}")
        given[name] = int(value)
    if len(given) != len(WEIGHT_NAMES) or not any(given.values()):
        raise PolicyError(f"{printable(text, 60)!r} are no weights; {wanted}")
    return given["slot"], given["core"], given["memory"]
