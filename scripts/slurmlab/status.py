"""What a lab is doing: daemons, nodes, partitions."""

from __future__ import annotations

import json

from ..labkit.table import columns
from .daemons import Supervisor, daemons
from .layout import Lab


def status(lab: Lab) -> dict[str, object]:
    """Return the lab's state: name, up, daemons (pid, null if it does not run, and port), nodes, partitions.

    Nodes and partitions are null while slurmctld does not run.
    """
    supervisor = Supervisor(lab)
    processes = supervisor.namespace.processes()
    running = []
    for daemon in daemons(lab):
        pid = supervisor.pid(daemon, processes)
        running.append(
            {
                "name": daemon.name,
                "pid": pid,
                "port": daemon.port,
                "socket": str(supervisor.host_path(daemon.socket)) if daemon.socket else None,
                "answers": pid is not None and supervisor.ready(daemon),
                "log": str(supervisor.host_path(daemon.log)),
            }
        )
    controller = next(d for d in running if d["name"] == "slurmctld")
    return {
        "name": lab.name,
        "version": lab.release.version,
        "profile": lab.profile.name,
        "port_base": lab.port_base,
        "directory": str(lab.dir),
        "endpoint": lab.endpoint,
        "registry": lab.registry,
        "up": supervisor.namespace.init_pid() is not None and all(d["answers"] for d in running),
        "daemons": running,
        "nodes": _nodes(supervisor) if controller["answers"] else None,
        "partitions": _partitions(supervisor) if controller["answers"] else None,
    }


def _nodes(supervisor: Supervisor) -> list[dict[str, object]]:
    done = supervisor.namespace.call("sinfo", "-h", "-N", "-p", "all", "-o", "%N|%T|%c|%m|%G|%f|%d")
    rows = [line.split("|") for line in done.stdout.splitlines()]
    return [
        {
            "name": name,
            "state": state,
            "cpus": int(cpus),
            "memory_mib": int(memory),
            "gres": "" if gres == "(null)" else gres,
            "features": features.split(","),
            "tmp_disk_mib": int(disk),
        }
        for name, state, cpus, memory, gres, features, disk in rows
    ]


def _partitions(supervisor: Supervisor) -> list[dict[str, object]]:
    done = supervisor.namespace.call("sinfo", "-h", "-s", "-o", "%P|%a|%l|%L|%D|%N")
    rows = [line.split("|") for line in done.stdout.splitlines()]
    return [
        {
            "name": name.rstrip("*"),
            "default": name.endswith("*"),
            "state": state,
            "max_time": limit,
            "default_time": default,
            "node_count": int(count),
            "nodes": nodes,
        }
        for name, state, limit, default, count, nodes in rows
    ]


def as_json(found: dict[str, object]) -> str:
    return json.dumps(found, indent=2)


def as_table(found: dict[str, object]) -> str:
    """Return the same for people."""
    lines = [
        f"lab {found['name']}: {'up' if found['up'] else 'not up'}   Slurm {found['version']}, "
        f"profile {found['profile']}   {found['endpoint']}   registry {found['registry']}",
        "",
    ]
    lines += columns("DAEMON PID PORT", found["daemons"], "name pid port")
    for title, key, shown, heads in (
        ("nodes", "nodes", "name state cpus memory_mib gres", "NODE STATE CPUS MIB GRES"),
        ("partitions", "partitions", "name state max_time nodes", "PARTITION STATE LIMIT NODES"),
    ):
        lines.append("")
        lines += (
            columns(heads, found[key], shown) if found[key] else [f"({title}: slurmctld does not answer)"]
        )
    return "\n".join(lines)
