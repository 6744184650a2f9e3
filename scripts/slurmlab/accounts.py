"""What slurmdbd and slurmctld are told once: cluster, accounts, users, QOS, a reservation."""

from __future__ import annotations

from ..labkit.processes import wait_until
from ..labkit.report import LabError, say
from . import releases
from .daemons import MARIADB_SOCKET, Supervisor

# Seconds a preempted job gets after SIGTERM.
GRACE_SECONDS = 5
RESERVATION = "lab"
# How sacctmgr says that there is nothing to do.
_DONE_ALREADY = ("already exist", "nothing new added", "request didn't affect anything")


def make_database(supervisor: Supervisor) -> None:
    """Make MariaDB's own tables, if there are none yet; before it starts."""
    if supervisor.host_path("/var/lib/mysql/mysql").is_dir():
        return
    say("making the database")
    log = supervisor.lab.run / "mariadb-install.log"
    done = supervisor.namespace.call(
        *("mariadb-install-db", "--no-defaults", "--user=mysql", "--datadir=/var/lib/mysql"),
        *("--skip-test-db", "--auth-root-authentication-method=socket"),
    )
    log.write_text(done.stdout + done.stderr)
    if done.returncode:
        raise LabError("mariadb-install-db failed", log=log, hint="scripts/slurm-lab down --wipe, then up")


def grant_database(supervisor: Supervisor) -> None:
    """Let slurmdbd, known by its uid at the socket, have its database. Safe to repeat."""
    sql = (
        "CREATE DATABASE IF NOT EXISTS slurm_acct_db; "
        "CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket; "
        "GRANT ALL ON slurm_acct_db.* TO slurm@localhost;"
    )
    done = supervisor.namespace.call("mariadb", "--no-defaults", f"--socket={MARIADB_SOCKET}", text=sql)
    if done.returncode:
        raise LabError(f"the database refused slurmdbd's grants: {done.stderr.strip()}")


def make_accounts(supervisor: Supervisor) -> None:
    """Give slurmdbd the cluster, accounts, users and QOS, once, and again when there are others."""
    cluster = f"Cluster={releases.CLUSTER}"
    orders = [
        f"add cluster {releases.CLUSTER}",
        f"add account {','.join(releases.ACCOUNTS)} {cluster}",
        "add qos high set Priority=1000 Preempt=normal",
        f"modify qos normal set GraceTime={GRACE_SECONDS}",
    ]
    for user in releases.USERS:
        for account in user.associations:
            order = f"add user {user.name} Account={account} {cluster} QOS=normal,high"
            orders.append(order + (f" AdminLevel={user.admin_level}" if user.admin_level != "None" else ""))
    marker = supervisor.lab.run / "accounts.done"
    if marker.exists() and marker.read_text() == "\n".join(orders):
        return
    say("making accounts")
    ask = supervisor.namespace.call
    if not wait_until(lambda: ask("sacctmgr", "-n", "show", "cluster").returncode == 0, 20):
        raise LabError("sacctmgr gets no answer", log=supervisor.host_path("/var/log/slurm/slurmdbd.log"))
    for order in orders:
        done = ask("sacctmgr", "-i", *order.split())
        words = done.stdout + done.stderr
        # A run that was cut short left some of it done.
        if done.returncode and not any(known in words.lower() for known in _DONE_ALREADY):
            raise LabError(f"sacctmgr {order}: {words.strip()}")
    marker.write_text("\n".join(orders))


def make_reservation(supervisor: Supervisor) -> None:
    """Reserve two of n4's 32 cores for alice and bob, for good: enough to use, too small to be in the way."""
    ask = supervisor.namespace.call
    if ask("scontrol", "show", "reservation", RESERVATION).returncode == 0:
        return
    order = f"create reservation ReservationName={RESERVATION} StartTime=now Duration=UNLIMITED"
    done = ask("scontrol", *order.split(), "Nodes=n4", "CoreCnt=2", "Users=alice,bob")
    if done.returncode:
        raise LabError(f"scontrol {order}: {(done.stdout + done.stderr).strip()}")
