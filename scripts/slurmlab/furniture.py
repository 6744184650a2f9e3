"""What is written into a lab's root and beside it: users, keys, Slurm's and the adapter's configuration."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from . import releases, spank, tokens
from .layout import Lab
from .namespace import passwd_entry

_CONF = Path(__file__).with_name("conf")
TOKEN_SECONDS = 365 * 24 * 3600


def furnish(lab: Lab) -> None:
    """Write users, hosts, keys, directories and all configuration. Safe to repeat."""
    _users(lab.root)
    names = " ".join(("localhost", releases.HOSTNAME, *releases.NODES))
    (lab.root / "etc/hosts").write_text(f"127.0.0.1 {names}\n")
    (lab.root / "etc/resolv.conf").write_text("")
    _directories(lab)
    _key(lab.root, "etc/munge/munge.key", "munge", 1024)
    _key(lab.root, "etc/slurm/jwt_hs256.key", "slurm", 32)
    if lab.profile.spank:
        _key(lab.root, spank.KEY_FILE.lstrip("/"), "root", 48)
        spank.install(lab)
    write_configuration(lab)
    _shared(lab)
    _token(lab)
    lab.config.write_text(adapter_configuration(lab))


def _users(root: Path) -> None:
    known = {line.split(":")[0] for line in (root / "etc/passwd").read_text().splitlines()}
    for user in releases.USERS:
        if user.name in known:
            continue
        home = f"/home/{user.name}" if user.login else "/nonexistent"
        shell = "/bin/bash" if user.login else "/usr/sbin/nologin"
        lines = {
            "etc/passwd": f"{user.name}:x:{user.uid}:{user.uid}::{home}:{shell}\n",
            "etc/group": f"{user.name}:x:{user.uid}:\n",
            "etc/shadow": f"{user.name}:!:20000::::::\n",
        }
        if user.login:
            # Subordinate ids, for apptainer's --fakeroot.
            lines["etc/subuid"] = lines["etc/subgid"] = f"{user.name}:{user.uid * 100000}:65536\n"
        for name, line in lines.items():
            with (root / name).open("a") as file:
                file.write(line)
        if user.login:
            (root / "home" / user.name).mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chown(root / "home" / user.name, user.uid, user.uid)


def _directories(lab: Lab) -> None:
    wanted = [
        ("etc/munge", "munge", 0o700),
        ("var/lib/munge", "munge", 0o700),
        ("var/log/munge", "munge", 0o700),
        ("run/munge", "munge", 0o755),
        ("run/mysqld", "mysql", 0o755),
        ("run/lab", "root", 0o755),
        ("etc/slurm", "root", 0o755),
        ("run/slurm", "slurm", 0o755),
        ("run/slurmrestd", "restd", 0o755),
        ("var/log/slurm", "slurm", 0o755),
        ("var/log/lab", "root", 0o755),
        ("var/lib/slurm", "slurm", 0o755),
        ("var/lib/slurm/slurmctld", "slurm", 0o700),
        ("var/spool/slurmd", "root", 0o755),
        ("var/lib/lab-registry", "registry", 0o755),
    ]
    for name, owner, mode in wanted:
        path = lab.root / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        uid, gid, _, _ = passwd_entry(lab.root, owner)
        os.chown(path, uid, gid)


def _key(root: Path, name: str, owner: str, size: int) -> None:
    path = root / name
    if not path.exists() or not path.stat().st_size:
        path.write_bytes(secrets.token_bytes(size))
    uid, gid, _, _ = passwd_entry(root, owner)
    path.chmod(0o600)
    os.chown(path, uid, gid)


def _shared(lab: Lab) -> None:
    for name, mode in (("", 0o755), ("pods", 0o711), ("images", 0o755)):
        path = lab.shared / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
    lab.run.mkdir(parents=True, exist_ok=True)
    state = lab.dir / "state"
    state.mkdir(exist_ok=True)
    state.chmod(0o700)


def _token(lab: Lab) -> None:
    """Write the one token of a site whose key the adapter does not have; anew at each start, for a year."""
    if lab.profile.token_of is not None:
        lab.token_file.touch(mode=0o600)
        lab.token_file.write_text(tokens.mint_from(lab.jwt_key, lab.profile.token_of, TOKEN_SECONDS) + "\n")


def write_configuration(lab: Lab) -> None:
    """Write the configuration of Slurm's daemons and of the registry."""
    values = {
        "CLUSTER": releases.CLUSTER,
        "HOSTNAME": releases.HOSTNAME,
        "CTLD_PORT": str(lab.ctld_port),
        "DBD_PORT": str(lab.dbd_port),
        "REGISTRY_PORT": str(lab.registry_port),
        **{f"{node.upper()}_PORT": str(lab.slurmd_port(node)) for node in releases.NODES},
    }
    for name in ("slurm.conf", "gres.conf", "cgroup.conf", "slurmdbd.conf", "registry.yml"):
        text = (_CONF / name).read_text()
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        if name == "slurm.conf":
            text = with_changes(text, lab.profile)
        path = lab.root / "etc/slurm" / name
        path.write_text(text)
        path.chmod(0o644)
        if name == "slurmdbd.conf":  # slurmdbd insists on this
            uid, gid, _, _ = passwd_entry(lab.root, "slurm")
            path.chmod(0o600)
            os.chown(path, uid, gid)


def with_changes(text: str, profile: releases.Profile) -> str:
    """Return slurm.conf with the profile's keys set anew or taken out."""
    lines, changes = [], dict(profile.slurm_conf)
    for line in text.splitlines():
        key = line.split("=")[0]
        if key not in changes:
            lines.append(line)
        elif (value := changes.pop(key)) is not None:
            lines.append(f"{key}={value}")
    lines += [f"{key}={value}" for key, value in changes.items() if value is not None]
    return "\n".join(lines) + "\n"


def adapter_configuration(lab: Lab) -> str:
    """Return the adapter's configuration file for this lab, in the form README.md describes."""

    def mapped(namespace: str, user: str, account: str | None, uid: int) -> str:
        return (
            f'    - {{namespace: {namespace}, service_account: "*", user: {user}, '
            f"account: {account or 'null'}, "
            f"qos: null, partition: null, uid: {uid}, gid: {uid}}}\n"
        )

    only = next((user for user in releases.USERS if user.name == lab.profile.token_of), None)
    if only is None:
        token = f'{{source: hs256, key_file: "{lab.jwt_key}", lifetime_s: 600}}'
        asker = "slurmrest"
        identities = (
            mapped("physics", "alice", "physics", 2001)
            + mapped("default", "alice", "physics", 2001)
            + mapped("ai", "bob", "ai", 2002)
        )
    else:
        token = f'{{source: file, file: "{lab.token_file}"}}'
        asker = "null"
        identities = mapped(
            '"*"', only.name, only.associations[0] if lab.profile.accounting else None, only.uid
        )
    return (
        f"# The adapter's configuration for the lab {lab.name}; written by scripts/slurm-lab.\n"
        f"cluster: {releases.CLUSTER}\n"
        "slurm:\n"
        f"  endpoints: [{lab.endpoint}]\n"
        "  api_version: auto\n"
        f"  token: {token}\n"
        f"  service_user: {asker}\n"
        "identity:\n"
        "  map:\n" + identities + "defaults: {partition: all, cpus: 1, memory: 256Mi, time_limit: 1h}\n"
        "gpu:\n"
        "  types: {NVIDIA-A100-SXM4-80GB: a100, NVIDIA-L40S: l40s}\n"
        f'state_dir: "{lab.dir / "state"}"\n'
        f'shared_dir: "{lab.shared / "pods"}"\n'
        "shared_dir_on_nodes: /shared/pods\n"
        f'images: {{insecure_registries: ["{lab.registry}"]}}\n'
    )
