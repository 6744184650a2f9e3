"""How a pod is recognised on its job.

A job carries its pod twice: twelve digits of the UID in the job's *name*, by which it is found
at once in slurmctld and slurmdbd, and a signed compact identity first in its *comment*, by which
it is proved. Anybody may give a job a name like ours; before any cancel or signal the signature
is compared, so that we never end a job that merely looks like a pod's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from dataclasses import dataclass

PREFIX = "sra1:"
_UID_DIGITS = 12
_NAME_CHARS = 40
_SIGNATURE_DIGITS = 16


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Who a job is: UID, namespace and name of its pod, and the site's cluster name."""

    uid: str
    namespace: str
    name: str
    cluster: str

    @property
    def token(self) -> str:
        """The first 12 hexadecimal digits of the UID; stands at the end of the job's name."""
        return uid_token(self.uid)

    @property
    def job_name(self) -> str:
        """The pod's name cut to 40 characters, a dash, and the token."""
        return f"{self.name[:_NAME_CHARS]}-{self.token}"


def uid_token(uid: str) -> str:
    """The 12 digits that stand for a UID in a job's name.

    A UID that is no UUID (a static pod's hash, a test's word) is hashed, so that its digits are
    hexadecimal too and two pods do not share them.
    """
    digits = uid.replace("-", "").lower()
    if not re.fullmatch(r"[0-9a-f]{12,}", digits):
        digits = hashlib.sha256(uid.encode()).hexdigest()
    return digits[:_UID_DIGITS]


def sign(identity: PodIdentity, key: bytes) -> str:
    """The comment's first word: ``sra1:<base64url JSON>.<16 hex digits of HMAC-SHA256>``."""
    raw = json.dumps(
        {"u": identity.uid, "n": identity.namespace, "p": identity.name, "c": identity.cluster},
        separators=(",", ":"),
        ensure_ascii=True,
    ).encode()
    body = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    return f"{PREFIX}{body}.{_signature(body, key)}"


def read(comment: str, key: bytes) -> PodIdentity | None:
    """The identity a job's comment proves, or None when it proves nothing.

    None covers a foreign comment, a broken one and a wrong signature alike: in all three cases
    the job is not ours to touch.
    """
    word = comment.split(" ", 1)[0]
    if not word.startswith(PREFIX):
        return None
    body, dot, signature = word[len(PREFIX) :].partition(".")
    try:
        # A comment is anybody's text: one that is no Unicode at all is foreign too.
        if not dot or not hmac.compare_digest(signature.encode(), _signature(body, key).encode()):
            return None
        raw = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return PodIdentity(uid=raw["u"], namespace=raw["n"], name=raw["p"], cluster=raw["c"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None


def _signature(body: str, key: bytes) -> str:
    return hmac.new(key, body.encode(), hashlib.sha256).hexdigest()[:_SIGNATURE_DIGITS]
