"""Kubeconfig files: administrator, provider, nodes, users. Each holds all it needs and can be moved."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path

from ..labkit.report import LabError
from . import pki, recipe
from .api import Api
from .layout import Lab

_TOKEN_SECONDS = 365 * 24 * 3600


def kubeconfig(lab: Lab, who: str) -> Path:
    """Return the path of a kubeconfig; those of nodes and users are made when first asked for.

    `who` is admin, provider (a service account), node, node:NAME (system:node:NAME), or user:NAME[:GROUP...].
    Raises LabError for anything else, or before the lab was first up.
    """
    if not (lab.pki / "ca.crt").exists():
        raise LabError(f"the lab {lab.name} was never up", hint=f"scripts/kube-lab up --name {lab.name}")
    kind, _, name = who.partition(":")
    match kind:
        case "admin" if not name:
            return _by_certificate(lab, "admin", "admin", "/O=system:masters/CN=kubernetes-admin")
        case "provider" if not name:
            path = lab.kubeconfigs / "provider"
            if not path.exists():
                raise LabError(
                    "the provider's token is made when the lab comes up", hint="scripts/kube-lab up"
                )
            return path
        case "node":
            node = _usable(name or recipe.NODE)
            subject = f"/O=system:nodes/CN=system:node:{node}"
            return _by_certificate(lab, f"node-{node}", f"node-{node}", subject)
        case "user" if name:
            user, *groups = (_usable(part) for part in name.split(":"))
            subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
            file = "-in-".join((f"user-{user}", *groups))
            return _by_certificate(lab, file, file, subject)
    raise LabError(f"--as {who}: admin, provider, node[:NAME] or user:NAME[:GROUP...], please")


def _usable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.@_-]*", name):
        raise LabError(f"--as: not a usable name: {name!r}")
    return name


def _by_certificate(lab: Lab, certificate: str, file: str, subject: str) -> Path:
    path = pki.signed(lab, certificate, subject, client=True)
    pair = {"client-certificate-data": path.with_name(path.name + ".crt")}
    pair["client-key-data"] = path.with_name(path.name + ".key")
    return _write(lab, file, {key: _encoded(source) for key, source in pair.items()})


def for_daemon(lab: Lab, name: str) -> Path:
    """Return the kubeconfig of a daemon of the control plane."""
    return _by_certificate(lab, name, name, f"/CN=system:{name}")


def for_provider(lab: Lab, api: Api) -> Path:
    """Write the provider's kubeconfig with a fresh token of its service account, valid for a year."""
    namespace, account = recipe.PROVIDER
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS, "audiences": [recipe.ISSUER]},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return _write(lab, "provider", {"token": api.ask("POST", path, asked)["status"]["token"]})


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _write(lab: Lab, name: str, user: dict[str, str]) -> Path:
    """Write a kubeconfig (JSON is YAML, too)."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": lab.name,
                "cluster": {
                    "server": lab.server,
                    "certificate-authority-data": _encoded(lab.pki / "ca.crt"),
                },
            }
        ],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": lab.name, "context": {"cluster": lab.name, "user": name}}],
        "current-context": lab.name,
    }
    path = lab.kubeconfigs / name
    fresh = path.with_name(f".{name}.{os.getpid()}.new")  # several commands may write it at once
    fresh.touch(0o600)
    fresh.write_text(json.dumps(content, indent=1) + "\n")
    fresh.rename(path)
    return path
