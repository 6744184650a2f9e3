"""When is the node Ready? Pure rules over the sidecar's answers to the ping.

A node that flaps moves every pod's fate, so one slow or failed ping says nothing, and a Slurm
controller that is down for maintenance says nothing either: the sidecar answers then with the last
known resources and ``slurm_connected: false``. Only a sidecar that cannot be asked for `patience_s`
makes the node NotReady.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 60.0
# Slurm has no such notion and jobs write where the site lets them; pods that ask for some must
# still find a node.
EPHEMERAL_STORAGE = "1Ti"
_NAMES = {"cpu": "cpu", "memory": "memory", "pods": "pods", "ephemeral-storage": "ephemeral-storage"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The Ready condition."""

    ready: bool
    reason: str
    message: str


class Health:
    """Judges pings. Not for threads: one loop pings."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._answered_at: float | None = None
        self._connected = True
        self._error = "not asked yet"

    @property
    def answered_once(self) -> bool:
        """Has the sidecar ever answered?"""
        return self._answered_at is not None

    def answered(self, ping: Mapping[str, Any], now: float) -> None:
        """The sidecar answered."""
        self._answered_at, self._error = now, ""
        self._connected = ping.get("slurm_connected") is not False

    def failed(self, error: str) -> None:
        """The sidecar did not answer, or not with 200."""
        self._error = error

    def verdict(self, now: float) -> Verdict:
        """The node's condition at `now`, in the clock of `answered`."""
        if self._answered_at is None:
            return Verdict(False, "SidecarUnreachable", f"the sidecar has not answered yet: {self._error}")
        silent = now - self._answered_at
        if self._error and silent > self._patience_s:
            words = f"the sidecar has not answered for more than {self._patience_s:.0f} s: {self._error}"
            return Verdict(False, "SidecarUnreachable", words)
        if not self._connected:
            return Verdict(
                True, "SlurmUnreachable", "Slurm cannot be asked just now; resources as last known"
            )
        return Verdict(True, "SidecarReady", "the sidecar answers and reaches Slurm")


def resources(ping: Mapping[str, Any], before: Mapping[str, str]) -> dict[str, str]:
    """The node's resources after a ping.

    What the answer leaves out stays as it was. An accelerator that was offered before and is
    missing from a list of accelerators is 0: the key must stay, or pods that ask for it would be
    told the resource does not exist.

    Args:
        ping: the answer.
        before: the resources so far, as Kubernetes quantities.
    """
    told = ping.get("resources")
    now = {"ephemeral-storage": EPHEMERAL_STORAGE, **before}
    if not isinstance(told, Mapping):
        return now
    for name, ours in _NAMES.items():
        if told.get(name) not in (None, ""):
            now[ours] = str(told[name])
    accelerators = told.get("accelerators")
    if isinstance(accelerators, list):
        now.update({name: "0" for name in before if "/" in name})
        for each in accelerators:
            if isinstance(each, Mapping) and each.get("resourceType"):
                available = each.get("available")
                now[str(each["resourceType"])] = "0" if available is None else str(available)
    return now
