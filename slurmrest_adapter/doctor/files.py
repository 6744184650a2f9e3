"""Files and directories on this host: what is secret, the state directory, the shared directory.

Nothing is made that stays: a trial directory is removed again, the state directory and its key are
left for the first start.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import stat
from pathlib import Path

from slurmrest_adapter.config import Settings
from slurmrest_adapter.doctor.verdict import Check, fail, ok, skip, warn
from slurmrest_adapter.identity.base import Owner

CONFIG, SECRETS, STATE, SHARED = "config", "secrets", "state-dir", "shared-dir"

# File systems that several hosts share: SQLite's locks and its journal cannot be trusted there.
_REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "fuse.glusterfs", "9p"}
)


def secret_files(settings: Settings, source: Path | None) -> list[Check]:
    """Every file that holds something secret: it must be there, readable by us and by nobody else.

    Args:
        source: the configuration file; it is one of them when it holds a token itself.
    """
    token = settings.slurm.token
    named: list[tuple[str, Path | None]] = [
        ("slurm.token.key_file", token.key_file if token.source == "hs256" else None),
        ("slurm.token.file", token.file if token.source == "file" else None),
        ("listen.token_file", settings.listen.token_file),
        ("spank.key_file", settings.spank.key_file if settings.spank.enabled else None),
        ("node.kubeconfig", settings.node.kubeconfig),
    ]
    if token.source == "static" and source is not None and source.exists():
        named.append(("slurm.token.token", source))
    found = [_secret(key, path) for key, path in named if path is not None]
    return found or [skip(SECRETS, "the configuration names no secret file")]


def _secret(key: str, path: Path) -> Check:
    try:
        with path.open("rb") as file:
            file.read(1)
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return fail(
            SECRETS,
            f"{path} cannot be read by uid {os.geteuid()}: {error.strerror}",
            f"correct {key}, or give this user the right to read the file",
            key,
        )
    shown = f"{path}, mode {mode:04o}"
    if mode & 0o007:
        return fail(SECRETS, f"{shown}: every user of this host may use it", f"chmod 600 {path}", key)
    if mode & 0o070:
        return warn(SECRETS, f"{shown}: its group may use it", f"chmod 600 {path}, unless that is meant", key)
    return ok(SECRETS, shown, key)


def state_directory(path: Path) -> Check:
    """``state_dir``: on a local disk, ours, writable, closed to others."""
    if not os.path.exists(path):  # noqa: PTH110  Path.exists raises where we may not look
        parent = next(above for above in path.parents if os.path.exists(above))  # noqa: PTH110
        if os.access(parent, os.W_OK | os.X_OK):
            return ok(STATE, f"{path} does not exist yet; the first start makes it")
        return fail(
            STATE,
            f"{path} does not exist, and uid {os.geteuid()} cannot make it",
            f"install -d -m 0700 -o {_user(os.geteuid())} {path}",
        )
    trial = path / f".doctor-{secrets.token_hex(8)}"
    try:
        trial.touch(mode=0o600, exist_ok=False)
        trial.unlink()
    except OSError as error:
        return fail(
            STATE,
            f"{path} cannot be written by uid {os.geteuid()}: {error.strerror}",
            f"chown {_user(os.geteuid())} {path}, or choose another state_dir",
        )
    kind = file_system(path)
    if kind in _REMOTE:
        return fail(
            STATE,
            f"{path} is on {kind}, where the store's locks cannot be trusted",
            "choose a state_dir on a local disk",
        )
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o022:
        return fail(STATE, f"{path}, mode {mode:04o}: others may write to it", f"chmod 700 {path}")
    if mode & 0o055:
        return warn(STATE, f"{path}, mode {mode:04o}: others may look into it", f"chmod 700 {path}")
    return ok(STATE, f"{path} on {kind or 'an unknown file system'}, mode {mode:04o}")


def shared_directory(path: Path | None, owners: list[Owner]) -> list[Check]:
    """``shared_dir``: whose it is, who may read it, and whether pods' directories can be made there.

    Args:
        owners: the users of the identity map, with the uids that are known.
    """
    if path is None:
        return [
            fail(SHARED, "not configured", "set shared_dir to a directory that this host and the nodes see")
        ]
    try:
        found = path.stat()
    except OSError as error:
        return [
            fail(
                SHARED,
                f"{path} cannot be looked at: {error.strerror}",
                f"mount it, or make it: install -d -m 0711 {path}",
            )
        ]
    if not stat.S_ISDIR(found.st_mode):
        return [fail(SHARED, f"{path} is no directory", "correct shared_dir")]
    made = _trial(path, owners)
    return [_ownership(path, found), made] if made else [_ownership(path, found)]


def _ownership(path: Path, found: os.stat_result) -> Check:
    """Who owns a directory can rename what is in it, and so give a job another plan."""
    mode, us = stat.S_IMODE(found.st_mode), os.geteuid()
    subject = "who may"
    shown = f"{path} belongs to {_user(found.st_uid)} (uid {found.st_uid}), mode {mode:04o}"
    if found.st_uid not in (0, us):
        return fail(
            SHARED,
            f"{shown}: that user could put another plan in any pod's place",
            f"chown {_user(us)} {path}, or choose a directory of this process's own user",
            subject,
        )
    if mode & 0o022 and not (mode & stat.S_ISVTX):
        return fail(
            SHARED, f"{shown}: others could remove and replace pods' directories", _chmod(path), subject
        )
    if us == 0 and not mode & 0o001:
        return fail(SHARED, f"{shown}: the jobs' users cannot get through it", _chmod(path), subject)
    if mode & 0o044:
        return warn(SHARED, f"{shown}: others may list the pods' directories", _chmod(path), subject)
    if mode & 0o022:
        return warn(SHARED, f"{shown}: others may put things there", _chmod(path), subject)
    return ok(SHARED, f"{shown}; each pod's directory is its user's alone", subject)


def _trial(path: Path, owners: list[Owner]) -> Check:
    """Make a directory as for a pod of each user, and hand it over."""
    us = os.geteuid()
    subject = "writing"
    trial = path / f".doctor-{secrets.token_hex(16)}"
    try:
        trial.mkdir(mode=0o700)
    except OSError as error:
        return fail(
            SHARED,
            f"uid {us} cannot make a directory in {path}: {error.strerror}",
            f"let {_user(us)} write there: mount it read-write, chown {_user(us)} {path}",
            subject,
        )
    try:
        return _hand_over(path, trial, owners, us, subject)
    finally:
        with contextlib.suppress(OSError):
            trial.rmdir()


def _hand_over(path: Path, trial: Path, owners: list[Owner], us: int, subject: str) -> Check:
    unknown = sorted({owner.user for owner in owners if owner.uid is None or owner.gid is None})
    if unknown:
        return fail(
            SHARED,
            f"uid and gid of {', '.join(unknown)} are known neither to identity.map nor to this host",
            "give uid and gid in identity.map",
            subject,
        )
    wanted = sorted({(owner.uid, owner.gid, owner.user) for owner in owners if owner.uid and owner.gid})
    if us != 0:
        others = [user for uid, _, user in wanted if uid != us]
        if others:
            return fail(
                SHARED,
                f"this process is uid {us} and cannot hand directories to {', '.join(others)}",
                "run it as root, or map all pods to the one user it runs as",
                subject,
            )
        return ok(
            SHARED, f"{path} can be written; all pods belong to uid {us}, as this process does", subject
        )
    for uid, gid, user in wanted:
        try:
            os.chown(trial, uid, gid)
        except OSError as error:
            return fail(
                SHARED,
                f"root cannot give a directory in {path} to {user} (uid {uid}): {error.strerror}",
                "export the file system with no_root_squash to this host, or run as the one user of all pods",
                subject,
            )
        if trial.stat().st_uid != uid:
            return fail(
                SHARED,
                f"a directory in {path} that was given to {user} (uid {uid}) belongs to "
                f"uid {trial.stat().st_uid} afterwards",
                "switch off the file system's id mapping for this host",
                subject,
            )
    names = ", ".join(dict.fromkeys(user for _, _, user in wanted)) or "nobody yet"
    return ok(SHARED, f"{path} can be written, and handed to {names}", subject)


def file_system(path: Path) -> str:
    """The kind of file system a path is on, as /proc/mounts calls it; empty if it does not tell."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        at = fields[1].replace("\\040", " ")
        inside = real == at or real.startswith(at.rstrip("/") + "/")
        if inside and len(at) >= len(best):  # a later mount covers an earlier one at the same place
            best, kind = at, fields[2]
    return kind


def _chmod(path: Path) -> str:
    return f"chmod 711 {path}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
