"""Service variables, as the kubelet makes them (kubernetes/pkg/kubelet/envvars).

Every service of the pod's namespace with a cluster IP gives ``NAME_SERVICE_HOST``, the ports and
the variables that Docker's links had, unless the pod says ``enableServiceLinks: false``; the API
server's own service gives ``KUBERNETES_…`` to every pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Service = Mapping[str, Any]


def service_variables(namespace: str, links: bool, services: Iterable[Service]) -> list[dict[str, str]]:
    """The variables for a pod, in the form of a container's ``env``.

    Args:
        namespace: the pod's.
        links: the pod's ``enableServiceLinks``.
        services: raw services of the pod's namespace and of ``default``.
    """
    chosen: dict[str, Service] = {}
    for service in services:
        metadata, spec = service.get("metadata") or {}, service.get("spec") or {}
        if spec.get("clusterIP") in (None, "", "None"):
            continue
        name, home = str(metadata.get("name") or ""), metadata.get("namespace")
        if links and home == namespace:
            chosen[name] = service
        elif home == "default" and name == "kubernetes":
            chosen.setdefault(name, service)
    found: list[dict[str, str]] = []
    for name in sorted(chosen):
        found += ({"name": key, "value": value} for key, value in _of(name, chosen[name]))
    return found


def _of(name: str, service: Service) -> Iterator[tuple[str, str]]:
    spec = service.get("spec") or {}
    ports = [port for port in spec.get("ports") or () if isinstance(port, Mapping)]
    prefix, host = _variable(name), str(spec["clusterIP"])
    yield f"{prefix}_SERVICE_HOST", host
    if not ports:
        return
    yield f"{prefix}_SERVICE_PORT", str(ports[0].get("port"))
    for port in ports:
        if port.get("name"):
            yield f"{prefix}_SERVICE_PORT_{_variable(str(port['name']))}", str(port.get("port"))
    for index, port in enumerate(ports):
        number, protocol = str(port.get("port")), str(port.get("protocol") or "TCP")
        url = f"{protocol.lower()}://{f'[{host}]' if ':' in host else host}:{number}"
        if index == 0:
            yield f"{prefix}_PORT", url
        link = f"{prefix}_PORT_{number}_{protocol.upper()}"
        yield link, url
        yield f"{link}_PROTO", protocol.lower()
        yield f"{link}_PORT", number
        yield f"{link}_ADDR", host


def _variable(name: str) -> str:
    return name.replace("-", "_").upper()
