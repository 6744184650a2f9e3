"""Tokens for slurmrestd, as Slurm's auth/jwt plugin reads them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path


def mint(key: bytes, user: str, lifetime: int) -> str:
    """Return an HS256 token for a user; a negative lifetime (seconds) makes one that has expired."""
    now = int(time.time())
    # The claims are those of Slurm's documentation: "sun" is the user's name.
    header, claims = {"alg": "HS256", "typ": "JWT"}, {"iat": now, "exp": now + lifetime, "sun": user}
    signed = ".".join(_encoded(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
    return signed + "." + _encoded(hmac.new(key, signed.encode(), hashlib.sha256).digest())


def mint_from(key_file: Path, user: str, lifetime: int) -> str:
    """Like mint(), with the key from a file."""
    return mint(key_file.read_bytes(), user, lifetime)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
