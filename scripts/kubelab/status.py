"""What a lab is doing: daemons and nodes."""

from __future__ import annotations

import json
from typing import Any

from ..labkit.table import columns
from .api import Api, ApiError
from .daemons import Supervisor, daemons
from .layout import Lab


def status(lab: Lab) -> dict[str, object]:
    """Return the lab's state: name, up, daemons (pid, null if it does not run, and port), nodes.

    Version and nodes are null while the API server does not answer.
    """
    supervisor = Supervisor(lab)
    running = [
        {
            "name": daemon.name,
            "pid": supervisor.pid(daemon),
            "port": lab.port(daemon.name),
            "answers": supervisor.ready(daemon),
            "log": str(supervisor.log(daemon)),
        }
        for daemon in daemons(lab)
    ]
    version, nodes = _ask(lab)
    return {
        "name": lab.name,
        "port_base": lab.port_base,
        "directory": str(lab.dir),
        "server": lab.server,
        "kubeconfig": str(lab.kubeconfigs / "admin"),
        "version": version,
        "up": lab.complete.exists() and all(daemon["answers"] for daemon in running),
        "daemons": running,
        "nodes": nodes,
    }


def _ask(lab: Lab) -> tuple[str | None, list[dict[str, object]] | None]:
    try:
        api = Api(lab)
        version = api.ask("GET", "/version")["gitVersion"]
        nodes = api.ask("GET", "/api/v1/nodes")["items"]
    except (OSError, ApiError):
        return None, None
    return version, [_node(node) for node in nodes]


def _node(node: dict[str, Any]) -> dict[str, object]:
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions") or ()}
    return {
        "name": node["metadata"]["name"],
        "ready": conditions.get("Ready", "Unknown"),
        "capacity": node["status"].get("capacity") or {},
    }


def as_json(found: dict[str, object]) -> str:
    return json.dumps(found, indent=2)


def as_table(found: dict[str, object]) -> str:
    """Return the same for people."""
    lines = [
        f"lab {found['name']}: {'up' if found['up'] else 'not up'}   Kubernetes {found['version'] or '-'}   "
        f"{found['server']}   {found['kubeconfig']}",
        "",
        *columns("DAEMON PID PORT", found["daemons"], "name pid port"),
        "",
    ]
    nodes = found["nodes"]
    if nodes:
        lines += columns("NODE READY", nodes, "name ready")
    else:
        lines.append("(no nodes)" if nodes is not None else "(nodes: the API server does not answer)")
    return "\n".join(lines)
