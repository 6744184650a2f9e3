"""What is done for one pod: the only place that creates, mirrors and deletes.

`sync` looks at the pod as it is now and takes the next step; it may be called at any time and any
number of times. One worker at a time holds a pod (see `queue`), so the steps need no locks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from slurmrest_adapter.domain.errors import PodError
from slurmrest_adapter.domain.resolve import Facts
from vk_provider import deadline, kube, status
from vk_provider.cache import Pod, PodCache, is_deleting, names_of, uid_of
from vk_provider.events import EventRecorder
from vk_provider.kube import KubeClient, pod_path
from vk_provider.payload import retrieved_pod_data
from vk_provider.references import NotYet
from vk_provider.sidecar import SidecarClient, SidecarRefused, SidecarUnreachable
from vk_provider.tracked import Book, Tracked

log = structlog.get_logger(__name__)

JOB_ID = "JobID"  # interLink's annotation
POD_IP = "interlink.eu/pod-ip"
REFUSED = "ProviderFailed"
SAME_PATCH_S = 60.0  # a patch that changed nothing is not repeated sooner
DELETE_AGAIN_S = 30.0


def rfc3339_now() -> str:
    """Now, in whole seconds and UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What pods are told of their node."""

    name: str
    address: str
    allocatable: Callable[[], Mapping[str, str]]


class PodController:
    """Takes the next step for a pod.

    Args:
        api, sidecar: the two sides.
        cache, book: what is known of the pods.
        events: says it in `kubectl describe`.
        node: what the pods are told of their node.
        poll_soon: asks for an early poll of the sidecar.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        api: KubeClient,
        sidecar: SidecarClient,
        cache: PodCache,
        book: Book,
        events: EventRecorder,
        node: NodeFacts,
        poll_soon: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._sidecar, self._cache, self._book = api, sidecar, cache, book
        self._events, self._node, self._poll_soon, self._clock = events, node, poll_soon, clock

    def sync(self, uid: str) -> float | None:
        """Take the next step for the pod; answers the seconds until the next one, None for "at news".

        Raises:
            NotYet, SidecarUnreachable, KubeError: try again later.
        """
        pod = self._cache.get(uid)
        if pod is None:
            self._clean_up(uid)
            return None
        tracked = self._book.of(uid, pod)
        if is_deleting(pod):
            return self._delete(pod, tracked)
        if status.is_finished(pod):
            return None
        try:
            if not tracked.submitted and not self._has_job(pod, tracked):
                self._submit(pod, tracked)
        except SidecarUnreachable:
            self._events.record(pod, "Warning", "SidecarUnreachable", "the sidecar cannot be asked", one=True)
            raise
        return None if tracked.entry is None else self._follow(pod, tracked, tracked.entry)

    def _follow(self, pod: Pod, tracked: Tracked, entry: Mapping[str, Any]) -> float | None:
        """Mirror what the sidecar said, and end a job whose pod is over its deadline."""
        left = None if status.has_ended(entry) else deadline.seconds_left(pod, entry, time.time())
        overdue = left is not None and left <= 0
        self._mirror(pod, tracked, entry, overdue)
        if overdue and self._end_job(pod, tracked):
            self._events.record(pod, "Normal", deadline.REASON, deadline.MESSAGE)
        return DELETE_AGAIN_S if overdue else left

    def _end_job(self, pod: Pod, tracked: Tracked) -> bool:
        """Ask for the job's end, again after a while; answers whether it was asked the first time."""
        now, before = self._clock(), tracked.delete_sent_at
        if before and now - before <= DELETE_AGAIN_S:
            return False
        self._sidecar.delete(pod)
        tracked.delete_sent_at = now
        self._poll_soon()
        return not before

    def _has_job(self, pod: Pod, tracked: Tracked) -> bool:
        """Was the pod submitted before this process started?"""
        if _job_id(pod):
            tracked.submitted = True
        elif not tracked.looked_up:
            # Between a submit and the annotation the provider may have died, and what the pod
            # refers to may be gone by now; so its job is asked for before anything is resolved.
            tracked.entry = self._sidecar.status([pod]).get(uid_of(pod))
            tracked.looked_up = True
            if tracked.entry is not None:
                tracked.submitted = True
                self._annotate(pod, str(tracked.entry.get("JID") or ""))
        return tracked.submitted

    def _submit(self, pod: Pod, tracked: Tracked) -> None:
        namespace, name = names_of(pod)
        try:
            payload = retrieved_pod_data(self._api, pod, self._facts(pod))
            job = self._sidecar.create(payload)
        except NotYet as why:
            held = status.held_back(pod, self._place(pod), why.reason, why.message, why.containers)
            self._write(pod, tracked, held)
            words = why.message if why.event == "FailedMount" else f"Error: {why.message}"
            self._events.record(pod, "Warning", why.event, words)
            raise
        except (PodError, SidecarRefused) as why:
            log.info("pod refused", pod=f"{namespace}/{name}", uid=uid_of(pod), why=str(why))
            self._write(pod, tracked, status.refused(pod, self._place(pod), REFUSED, str(why)))
            self._events.record(pod, "Warning", "ProviderCreateFailed", str(why))
            return
        tracked.submitted = True
        log.info("pod submitted", pod=f"{namespace}/{name}", uid=uid_of(pod), job=job)
        self._annotate(pod, job)
        self._events.record(pod, "Normal", "SlurmJobSubmitted", f"Slurm job {job or 'not numbered yet'}")
        self._poll_soon()

    def _annotate(self, pod: Pod, job: str) -> None:
        """Keep the job's id on the pod; the status subresource takes annotations and a node's identity
        may write nothing else of a pod."""
        if job and _job_id(pod) != job:
            self._patch(pod, {"metadata": {"uid": uid_of(pod), "annotations": {JOB_ID: job}}})

    def _mirror(self, pod: Pod, tracked: Tracked, entry: Mapping[str, Any], overdue: bool = False) -> None:
        before = status.waiting_words(pod.get("status") or {})
        new = status.mirrored(pod, entry, self._place(pod), overdue)
        self._annotate(pod, str(entry.get("JID") or ""))
        wrote = self._write(pod, tracked, new)
        words = status.waiting_words(new)
        if wrote and words and words != before and new["phase"] == "Pending":
            self._events.record(pod, "Normal", "SlurmJobPending", words, one=True)

    def _delete(self, pod: Pod, tracked: Tracked) -> float | None:
        """The pod's end: the job's end first, then the last status, then the final DELETE."""
        try:
            if self._end_job(pod, tracked) and (tracked.submitted or _job_id(pod)):
                self._events.record(pod, "Normal", "Killing", "the Slurm job is being ended")
        except (SidecarUnreachable, SidecarRefused) as why:
            if not _left_nothing(pod):
                if isinstance(why, SidecarRefused):
                    raise SidecarUnreachable(f"POST /delete: {why}") from why
                raise
        if _left_nothing(pod):
            self._finish(pod, tracked)
            return None
        # An answer to a question that was sent before the deletion says nothing about now.
        if tracked.asked_at <= tracked.delete_sent_at:
            return DELETE_AGAIN_S
        if tracked.entry is not None:
            self._mirror(pod, tracked, tracked.entry)
        if not status.has_ended(tracked.entry):
            return DELETE_AGAIN_S
        self._finish(pod, tracked)
        return None

    def _finish(self, pod: Pod, tracked: Tracked) -> None:
        """The final DELETE; it must not meet another pod of the same name."""
        namespace, name = names_of(pod)
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid_of(pod)},
        }
        try:
            self._api.delete(pod_path(namespace, name), options)
        except (kube.NotFound, kube.Conflict):
            log.info("pod was gone already", pod=f"{namespace}/{name}", uid=uid_of(pod))
        tracked.removed = True
        log.info("pod deleted", pod=f"{namespace}/{name}", uid=uid_of(pod))

    def _clean_up(self, uid: str) -> None:
        """The API server has the pod no more: by our final DELETE, or by force, its job running."""
        tracked = self._book.get(uid)
        if tracked is None:
            return
        if not tracked.removed:
            try:
                self._sidecar.delete(tracked.pod)
            except SidecarRefused as why:
                log.error("the sidecar will not end a pod that is gone", uid=uid, why=str(why))
        self._book.forget(uid)

    def _write(self, pod: Pod, tracked: Tracked, new: Mapping[str, Any]) -> bool:
        """Patch the status with what changed; answers whether anything was written."""
        patch = status.changes(pod.get("status") or {}, new)
        if not patch:
            return False
        text, now = json.dumps(patch, sort_keys=True), self._clock()
        if tracked.patch[0] == text and now - tracked.patch[1] < SAME_PATCH_S:
            return False  # the API server has its own idea of this; the watch will tell
        self._patch(pod, {"metadata": {"uid": uid_of(pod)}, "status": patch})
        tracked.patch = (text, now)
        return True

    def _patch(self, pod: Pod, body: Mapping[str, Any]) -> None:
        namespace, name = names_of(pod)
        try:
            answer = self._api.patch(pod_path(namespace, name, "status"), body, kube.STRATEGIC)
        except (kube.NotFound, kube.Conflict) as error:
            # Another pod of that name, or none: the watch brings the news of this one's end.
            log.info("status not written, the pod is gone", pod=f"{namespace}/{name}", error=str(error))
            return
        self._cache.update(answer)

    def _facts(self, pod: Pod) -> Facts:
        return Facts(
            node_name=self._node.name,
            host_ips=(self._node.address,),
            pod_ips=(self._pod_ip(pod),),
            allocatable=self._node.allocatable(),
        )

    def _place(self, pod: Pod) -> status.Place:
        return status.Place(rfc3339_now(), self._node.address, self._pod_ip(pod))

    def _pod_ip(self, pod: Pod) -> str:
        """A job has no network of its own: like a hostNetwork pod it has the node's address."""
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        return str(annotations.get(POD_IP) or self._node.address)


def _job_id(pod: Pod) -> str:
    return str(((pod.get("metadata") or {}).get("annotations") or {}).get(JOB_ID) or "")


def _left_nothing(pod: Pod) -> bool:
    """Is it certain, from the pod alone, that no process of it is left?

    A phase alone is not: others may write Failed on a pod whose node they believe lost.
    """
    known = pod.get("status") or {}
    told = known.get("containerStatuses") or ()
    all_ended = bool(told) and all("terminated" in (each.get("state") or {}) for each in told)
    return status.is_finished(pod) and (all_ended or known.get("reason") == REFUSED)
