"""What a pod says of names: hostAliases, dnsConfig and dnsPolicy.

The rules are Kubernetes' own (pkg/apis/core/validation, `validatePodDNSConfig` and
`ValidateHostAliases`); the files are written on the node, which alone knows its own.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.domain.pod import PodView, items, mapping, optional, text
from slurmrest_adapter.domain.podplan import DnsPlan

_MOST_NAMESERVERS, _MOST_SEARCHES, _SEARCH_CHARACTERS = 3, 32, 2048
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SEARCH = re.compile(r"\.|[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?(\.[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?)*\.?")
_WORD = re.compile(r"[!-~]+")

Aliases = tuple[tuple[str, tuple[str, ...]], ...]


def aliases_of(pod: PodView) -> Aliases:
    """The lines for /etc/hosts: address and names. Raises Invalid."""
    found = []
    for index, raw in enumerate(items(pod.spec.get("hostAliases"), "spec.hostAliases")):
        where = f"spec.hostAliases[{index}]"
        alias = mapping(raw, where)
        address = _address(alias.get("ip"), f"{where}.ip")
        names = []
        for at, name in enumerate(items(alias.get("hostnames"), f"{where}.hostnames")):
            if not isinstance(name, str) or len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
                raise Invalid(f"{where}.hostnames[{at}]", f"{name!r} is no host name")
            names.append(name)
        if names:
            found.append((address, tuple(names)))
    return tuple(found)


def dns_of(pod: PodView) -> DnsPlan | None:
    """How the pod's names are resolved; None is as on the node. Raises Invalid."""
    config = mapping(pod.spec.get("dnsConfig"), "spec.dnsConfig")
    own = optional(pod.spec.get("dnsPolicy"), "spec.dnsPolicy") == "None"
    where = "spec.dnsConfig"
    nameservers = tuple(
        _address(value, f"{where}.nameservers[{index}]")
        for index, value in enumerate(items(config.get("nameservers"), f"{where}.nameservers"))
    )
    if len(nameservers) > _MOST_NAMESERVERS:
        raise Invalid(f"{where}.nameservers", f"no more than {_MOST_NAMESERVERS} are allowed")
    if own and not nameservers:
        raise Invalid(f"{where}.nameservers", "at least one is needed with dnsPolicy: None")
    searches = []
    for index, value in enumerate(items(config.get("searches"), f"{where}.searches")):
        if not isinstance(value, str) or not _SEARCH.fullmatch(value):
            raise Invalid(f"{where}.searches[{index}]", f"{value!r} is no domain")
        searches.append(value)
    if len(searches) > _MOST_SEARCHES or len(" ".join(searches)) > _SEARCH_CHARACTERS:
        most = f"{_MOST_SEARCHES} domains or {_SEARCH_CHARACTERS} characters"
        raise Invalid(f"{where}.searches", f"no more than {most} are allowed")
    options = []
    for index, raw in enumerate(items(config.get("options"), f"{where}.options")):
        at = f"{where}.options[{index}]"
        option = mapping(raw, at)
        name, value = _word(option.get("name"), f"{at}.name"), option.get("value")
        options.append(name if value in (None, "") else f"{name}:{_word(value, f'{at}.value')}")
    if not (own or nameservers or searches or options):
        return None
    return DnsPlan(not own, nameservers, tuple(searches), tuple(options))


def _address(value: Any, where: str) -> str:
    try:
        ipaddress.ip_address(text(value, where))
    except ValueError:
        raise Invalid(where, f"{value!r} is no IP address") from None
    return str(value)


def _word(value: Any, where: str) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise Invalid(where, "must be a word without spaces")
    return value
