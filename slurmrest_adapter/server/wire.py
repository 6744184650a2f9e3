"""interLink's plugin wire: what its API server sends, and what it wants to hear.

Read leniently: unknown keys are kept out of the way, Go's ``null`` is an empty list or map, older
releases wrap the envelope of ``/create`` into a list of one. Answers have exactly the keys of
interLink's own Slurm plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurmrest_adapter.domain.errors import Invalid, Unsupported
from slurmrest_adapter.domain.pod import items, mapping, text
from slurmrest_adapter.domain.volumes import Objects, of_envelope
from slurmrest_adapter.store.base import PodRecord
from slurmrest_adapter.translate.status import PodStatus


@dataclass(frozen=True, slots=True, repr=False)
class Envelope:
    """The body of ``/create``: the pod and the objects it refers to. Secret as a whole."""

    pod: Mapping[str, Any]
    objects: Objects


def envelope(body: Any) -> Envelope:
    """Read ``/create``'s body.

    Raises:
        Invalid: no envelope, or several pods.
        Unsupported: a ready job script, which this release does not run.
    """
    if isinstance(body, list):
        if len(body) != 1:
            raise Invalid("body", f"one pod is needed, this has {len(body)}")
        body = body[0]
    raw = mapping(body, "body")
    pod = mapping(raw.get("pod"), "pod")
    if not pod:
        raise Invalid("pod", "is required")
    if raw.get("jobScript"):
        raise Unsupported("jobScript", "a ready job script is not run by this adapter")
    # Every pod the API server sends carries its kind; Go's client leaves it out.
    complete = {"apiVersion": "v1", "kind": "Pod", **pod}
    return Envelope(complete, of_envelope(raw.get("container")))


def uids(body: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """The pods of ``/status``, each with its UID, in the order asked; empty is a ping."""
    asked = []
    for index, pod in enumerate(items(body, "body")):
        where = f"body[{index}]"
        pod = mapping(pod, where)
        uid = text(mapping(pod.get("metadata"), f"{where}.metadata").get("uid"), f"{where}.metadata.uid")
        asked.append((uid, pod))
    return asked


def status(record: PodRecord, pod: PodStatus) -> dict[str, Any]:
    """One pod's entry of ``/status``."""
    return {
        "name": record.name,
        "UID": record.uid,
        "namespace": record.namespace,
        "JID": str(record.job_id or ""),
        "containers": list(pod.containers),
        "initContainers": list(pod.init_containers),
        # Beyond interLink's own keys: what only vk-provider reads.
        "phase": pod.phase,
        "reason": pod.reason,
        "message": pod.message,
        "node": pod.node,
        "gpus": list(pod.gpus),
        "startTime": pod.start_time,
        "conditions": list(pod.conditions),
        # The deadline that the job keeps: a later one of the pod is not known to it.
        "activeDeadlineSeconds": record.skeleton.get("deadline"),
    }


def unknown(uid: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a pod that was never created here: waiting, not failed and not gone."""
    metadata = pod.get("metadata") or {}
    message = "this adapter has no record of the pod; it was never submitted here"

    def waiting(containers: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": container.get("name", ""),
                "image": container.get("image", ""),
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": {"waiting": {"reason": "ContainerStatusUnknown", "message": message}},
                "lastState": {},
            }
            for container in containers or ()
            if isinstance(container, Mapping)
        ]

    spec = pod.get("spec") or {}
    return {
        "name": metadata.get("name", ""),
        "UID": uid,
        "namespace": metadata.get("namespace", ""),
        "JID": "",
        "containers": waiting(spec.get("containers")),
        "initContainers": waiting(spec.get("initContainers")),
        "phase": "Pending",
        "reason": "",
        "message": message,
        "node": "",
        "gpus": [],
        "startTime": "",
        "conditions": [],
    }


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The body of ``/getLogs``.

    Attributes:
        uid: the pod; empty when only names are given.
        tail: lines from the end, None for all.
        limit_bytes: None for no limit.
        since_seconds, since_time: only what was written after; RFC 3339 for the time.
    """

    uid: str
    namespace: str
    name: str
    container: str
    tail: int | None = None
    limit_bytes: int | None = None
    timestamps: bool = False
    follow: bool = False
    previous: bool = False
    since_seconds: int | None = None
    since_time: str | None = None


# Go's zero time, which stands for "not given".
_NO_TIME = "0001-01-01T00:00:00Z"


def log_options(body: Any) -> LogOptions:
    """Read ``/getLogs``'s body; Go's zero values mean "not given"."""
    raw = mapping(body, "body")
    options = mapping(raw.get("Opts"), "Opts")
    since = options.get("SinceTime")
    return LogOptions(
        uid=str(raw.get("PodUID") or ""),
        namespace=str(raw.get("Namespace") or ""),
        name=str(raw.get("PodName") or ""),
        container=text(raw.get("ContainerName"), "ContainerName"),
        # 0 is "not given" on interLink's wire: its field is a plain int.
        tail=_count(options, "Tail"),
        limit_bytes=_count(options, "Bytes") or _count(options, "LimitBytes"),
        timestamps=bool(options.get("Timestamps")),
        follow=bool(options.get("Follow")),
        previous=bool(options.get("Previous")),
        since_seconds=_count(options, "SinceSeconds"),
        since_time=str(since) if since and since != _NO_TIME else None,
    )


def _count(options: Mapping[str, Any], key: str) -> int | None:
    value = options.get(key)
    if value in (None, 0):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Invalid(f"Opts.{key}", f"{value!r} is no whole number from 0")
    return value
