"""What the labs are made of, as data: releases, profiles, nodes, users, ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Raise when the way a root is built changes, so that old caches are not taken for new ones.
ROOT_RECIPE = 1
# Raise when the images change.
IMAGE_RECIPE = 1

PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurmrestd",
    "slurm-client",
    "slurm-wlm-jwt-plugin",
    "slurm-wlm-mysql-plugin",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-elasticsearch-plugin",
    "munge",
    "mariadb-server",
    "iproute2",
    "procps",
    "apptainer",
    "squashfuse",
    "squashfs-tools",
    "fuse3",
    "uidmap",
    "busybox-static",
    "docker-registry",
    "python3",
    "ca-certificates",
)


@dataclass(frozen=True)
class Release:
    """One Slurm release and the Debian suite it is taken from."""

    version: str
    suite: str
    port_base: int
    packages: tuple[str, ...] = PACKAGES
    # Suites from which a package comes only if `suite` has none (apptainer is in sid alone).
    extra_suites: tuple[str, ...] = ("sid",)
    # 24.11's slurmrestd does not start with /slurmdb where there is no slurmdbd, 26.05's does.
    slurmdb_always: bool = True


@dataclass(frozen=True)
class Profile:
    """How a site is configured: changes to conf/slurm.conf, which daemons there are, whose token is used."""

    name: str
    # Keys of slurm.conf to set; None takes the key out.
    slurm_conf: Mapping[str, str | None] = field(default_factory=dict)
    accounting: bool = True
    port_offset: int = 0
    # The adapter has the token of this one user, whom all pods run as; None: the cluster's key.
    token_of: str | None = None
    # Our SPANK plugin is built, installed and named in plugstack.conf.
    spank: bool = False


@dataclass(frozen=True)
class User:
    """An account inside the lab; associations are Slurm accounts, the first one the default."""

    name: str
    uid: int
    associations: tuple[str, ...] = ()
    admin_level: str = "None"
    # A login user has a shell and may use subordinate ids.
    login: bool = True


RELEASES = {
    r.version: r
    for r in (
        Release("24.11", "trixie", 6800, slurmdb_always=False),
        Release("26.05", "forky", 7800),
    )
}
PROFILES = {
    p.name: p
    for p in (
        Profile("default"),
        # The strict ordinary site: one user's own token, nobody sees another's jobs, no accounting of any
        # kind (so none of what needs it: preemption by QOS, GPUs as accounted TRES), Slurm's own patience.
        Profile(
            "plain",
            slurm_conf={
                "PrivateData": "jobs",
                "KillWait": "30",
                "SchedulerParameters": None,
                "PriorityType": None,
                "PreemptType": None,
                "PreemptMode": None,
                "PreemptExemptTime": None,
                "AccountingStorageType": None,
                "AccountingStorageHost": None,
                "AccountingStoragePort": None,
                "AccountingStorageTRES": None,
                "AccountingStorageEnforce": None,
                "AccountingStoreFlags": None,
                "JobAcctGatherType": None,
                "JobAcctGatherFrequency": None,
            },
            accounting=False,
            port_offset=100,
            token_of="alice",
        ),
        # Without Alloc a node's prolog runs when the first step comes, and a node without one never has any.
        Profile(
            "spank",
            slurm_conf={"PrologFlags": "Alloc", "SlurmdDebug": "verbose"},
            port_offset=200,
            spank=True,
        ),
    )
}

HOSTNAME = "slurmhost"
CLUSTER = "lab"
NODES = ("n1", "n2", "n3", "n4")
USERS = (
    User("alice", 2001, ("physics", "ai")),
    User("bob", 2002, ("ai",)),
    User("carol", 2003),
    User("registry", 2988, login=False),
    User("restd", 2989, login=False),
    User("slurmrest", 2990, ("root",), "Operator", login=False),
)
ACCOUNTS = ("physics", "ai")

# Ports, as offsets from the lab's base.
CTLD_PORT, DBD_PORT, REST_PORT, EVENTS_PORT, SLURMD_PORT = 17, 19, 20, 25, 31
REGISTRY_PORT = -1800
