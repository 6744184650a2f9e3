"""Everything a pod needs, resolved: the body of ``POST /create``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from slurmrest_adapter.domain import expand, subpath
from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.domain.resolve import Facts, resolve
from vk_provider.cache import Pod, names_of, uid_of
from vk_provider.kube import KubeClient, NotFound, path
from vk_provider.references import NotYet, fetch
from vk_provider.services import service_variables
from vk_provider.volumes import containers_data


def retrieved_pod_data(api: KubeClient, pod: Pod, facts: Facts) -> dict[str, Any]:
    """interLink's `RetrievedPodData` for a pod.

    Values that references bring in have each ``$`` doubled, so that the sidecar's expansion of
    ``$(NAME)`` gives them back as they were. Service variables come first: the pod's own win.

    Raises:
        NotYet: something is missing that may come; try again.
        Unsupported, Invalid: the pod asks for what cannot be given here.
        KubeError: the API server could not be asked.
    """
    objects = fetch(api, pod)
    data = containers_data(pod, objects, facts, lambda audience, life: _token(api, pod, audience, life))
    try:
        resolved = resolve(pod, objects.of("ConfigMap"), objects.of("Secret"), facts)
    except Invalid as error:
        # A key that is not there (yet): the kubelet waits for it as well.
        raise NotYet("CreateContainerConfigError", "Failed", str(error)) from error
    complete = _with_services(api, resolved)
    _check_parts(complete)
    return {"pod": complete, "container": data}


def _check_parts(pod: Pod) -> None:
    """Raise NotYet for a container that would mount what is no part of a volume: as with the
    kubelet it waits, since the annotation that its path is made of may change."""
    for group in ("initContainers", "containers"):
        for index, container in enumerate(pod["spec"].get(group) or ()):
            written = ((each["name"], each.get("value") or "") for each in container["env"])
            env = dict(expand.env(written))
            for number, mount in enumerate(container.get("volumeMounts") or ()):
                try:
                    subpath.of_mount(mount, f"spec.{group}[{index}].volumeMounts[{number}]", env)
                except Invalid as error:
                    concerned = frozenset({container["name"]})
                    raise NotYet("CreateContainerConfigError", "Failed", str(error), concerned) from error


def _with_services(api: KubeClient, pod: dict[str, Any]) -> dict[str, Any]:
    namespace, _ = names_of(pod)
    spec = dict(pod["spec"])
    links = spec.get("enableServiceLinks") is not False
    services: list[Mapping[str, Any]] = []
    if links:
        services += api.get(path("api", "v1", "namespaces", namespace, "services")).get("items") or []
    with contextlib.suppress(NotFound):
        services.append(api.get(path("api", "v1", "namespaces", "default", "services", "kubernetes")))
    variables = service_variables(namespace, links, services)
    for group in ("initContainers", "containers"):
        if spec.get(group):
            spec[group] = [{**c, "env": [*variables, *(c.get("env") or ())]} for c in spec[group]]
    metadata = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    return {**pod, "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _token(api: KubeClient, pod: Pod, audience: str, seconds: int) -> str:
    """A token of the pod's service account, bound to the pod: it dies with it."""
    namespace, name = names_of(pod)
    account = (pod.get("spec") or {}).get("serviceAccountName") or "default"
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [audience] if audience else [],
            "expirationSeconds": seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid_of(pod)},
        },
    }
    where = path("api", "v1", "namespaces", namespace, "serviceaccounts", account, "token")
    try:
        answer = api.create(where, request)
    except NotFound as error:
        raise NotYet("ContainerCreating", "FailedMount", f"no token: {error.message}") from error
    return str((answer.get("status") or {}).get("token") or "")
