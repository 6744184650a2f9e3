"""Names in a pod's environment: of variables, and of what a reference points at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Kubernetes' own rule since 1.30: any printable ASCII but "=".
_KUBERNETES_NAME = re.compile(r"[\x20-\x3c\x3e-\x7e]+")


def is_env_name(name: str) -> bool:
    """Would Kubernetes take this as a variable's name?"""
    return _KUBERNETES_NAME.fullmatch(name) is not None


def target(key: str, reference: Any) -> str:
    """A reference in words, as in ``key "a" of ConfigMap "b"``."""
    get = reference.get if isinstance(reference, Mapping) else lambda _key: None
    kind = "ConfigMap" if key.startswith("configMap") else "Secret"
    match key:
        case "configMapKeyRef" | "secretKeyRef":
            return f'key "{get("key")}" of {kind} "{get("name")}"'
        case "configMapRef" | "secretRef":
            return f'{kind} "{get("name")}"'
        case "fieldRef":
            return f"field {get('fieldPath')}"
        case "resourceFieldRef":
            return f"resource {get('resource')}"
        case _:
            return f'key "{get("key")}" of a file in volume "{get("volumeName")}"'
