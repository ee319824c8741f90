"""Proxies from the environment, by Go's rules, as in kubectl: HTTPS_PROXY, HTTP_PROXY, NO_PROXY."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_for(server: str, environ: Mapping[str, str]) -> str | None:
    """The proxy for this server; None = connect directly."""
    parts = urlsplit(server)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    proxy = _value(environ, f"{parts.scheme}_proxy")
    if not proxy or _is_loopback(host) or _is_exempt(host, port, _value(environ, "no_proxy")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _value(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_exempt(host: str, port: int, exempt: str) -> bool:
    return any(_covers(entry.strip().lower(), host.lower(), port) for entry in exempt.split(",") if entry.strip())


def _covers(entry: str, host: str, port: int) -> bool:
    """Whether the entry matches: `*`, a network, an address, or a domain with its subdomains.

    The last two may name a port.
    """
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal() and _address(entry) is None:
        if int(number) != port:
            return False
        entry = name
    if address is not None:
        return _address(entry.strip("[]")) == address
    if entry.startswith("*."):
        entry = entry[1:]
    return host.endswith(entry) if entry.startswith(".") else host == entry or host.endswith(f".{entry}")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
