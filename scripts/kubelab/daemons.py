"""The daemons of a lab, in the order in which they start, and how each is started, seen and stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..labkit.processes import answers, check_port, end_process, noted_pid, spawn, wait_until
from ..labkit.report import LabError
from . import kubeconfigs, recipe
from .api import Api
from .layout import Lab

START_SECONDS = 90


@dataclass(frozen=True)
class Daemon:
    """One daemon: its name is its program's."""

    name: str
    options: dict[str, str]


def _etcd(lab: Lab) -> Daemon:
    pki, client, peer = (
        lab.pki,
        f"https://127.0.0.1:{lab.port('etcd')}",
        f"https://127.0.0.1:{lab.port('etcd-peer')}",
    )
    options = {
        "name": "lab",
        "data-dir": str(lab.dir / "etcd"),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"lab={peer}",
        "logger": "zap",
        "log-level": "warn",
        # The lab survives the end of its processes; it need not survive the loss of power.
        "unsafe-no-fsync": "true",
    }
    for prefix in ("", "peer-"):
        options |= {
            f"{prefix}cert-file": f"{pki}/etcd.crt",
            f"{prefix}key-file": f"{pki}/etcd.key",
            f"{prefix}trusted-ca-file": f"{pki}/etcd-ca.crt",
            f"{prefix}client-cert-auth": "true",
        }
    return Daemon("etcd", options)


def _serving(lab: Lab, name: str) -> dict[str, str]:
    return {
        "bind-address": "127.0.0.1",
        "secure-port": str(lab.port(name)),
        "tls-cert-file": f"{lab.pki}/{name}.crt",
        "tls-private-key-file": f"{lab.pki}/{name}.key",
        "v": "1",
    }


def _apiserver(lab: Lab) -> Daemon:
    name, pki = "kube-apiserver", lab.pki
    return Daemon(
        name,
        _serving(lab, name)
        | {
            "insecure-port": "0",
            "advertise-address": "127.0.0.1",
            # The service "kubernetes" cannot have a loopback address as its endpoint.
            "endpoint-reconciler-type": "none",
            "etcd-servers": f"https://127.0.0.1:{lab.port('etcd')}",
            "etcd-cafile": f"{pki}/etcd-ca.crt",
            "etcd-certfile": f"{pki}/etcd-client.crt",
            "etcd-keyfile": f"{pki}/etcd-client.key",
            "client-ca-file": f"{pki}/ca.crt",
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "service-cluster-ip-range": recipe.SERVICE_RANGE,
            "service-account-issuer": recipe.ISSUER,
            "service-account-signing-key-file": f"{pki}/service-accounts.key",
            "service-account-key-file": f"{pki}/service-accounts.key",
            "kubelet-client-certificate": f"{pki}/kubelet-client.crt",
            "kubelet-client-key": f"{pki}/kubelet-client.key",
            "kubelet-certificate-authority": f"{pki}/ca.crt",
            "kubelet-preferred-address-types": "InternalIP,Hostname",
            "requestheader-client-ca-file": f"{pki}/front-ca.crt",
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": f"{pki}/front-proxy.crt",
            "proxy-client-key-file": f"{pki}/front-proxy.key",
            "feature-gates": recipe.FEATURE_GATES,
        },
    )


def _client(lab: Lab, name: str) -> dict[str, str]:
    path = str(lab.kubeconfigs / name)
    flags = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return dict.fromkeys(flags, path) | {"port": "0", "leader-elect": "false"}


def _controller_manager(lab: Lab) -> Daemon:
    name, pki = "kube-controller-manager", lab.pki
    return Daemon(
        name,
        _serving(lab, name)
        | _client(lab, name)
        | {
            "use-service-account-credentials": "true",
            "service-account-private-key-file": f"{pki}/service-accounts.key",
            "root-ca-file": f"{pki}/ca.crt",
            "cluster-signing-cert-file": f"{pki}/ca.crt",
            "cluster-signing-key-file": f"{pki}/ca.key",
            # Its default of 20 requests a second makes the first service accounts late.
            "kube-api-qps": "500",
            "kube-api-burst": "1000",
            "feature-gates": recipe.FEATURE_GATES,
        },
    )


def _scheduler(lab: Lab) -> Daemon:
    return Daemon("kube-scheduler", _serving(lab, "kube-scheduler") | _client(lab, "kube-scheduler"))


def daemons(lab: Lab) -> list[Daemon]:
    """Return the lab's daemons in starting order."""
    return [_etcd(lab), _apiserver(lab), _controller_manager(lab), _scheduler(lab)]


class Supervisor:
    """Starts, finds and stops the daemons of one lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def named(self, name: str) -> Daemon:
        """Return the daemon of that name. Raises LabError if the lab has none."""
        known = {daemon.name: daemon for daemon in daemons(self.lab)}
        if name not in known:
            raise LabError(f"no daemon {name!r} in this lab; there is {', '.join(known)}")
        return known[name]

    def log(self, daemon: Daemon) -> Path:
        return self.lab.log / f"{daemon.name}.log"

    def _note(self, daemon: Daemon) -> Path:
        return self.lab.run / f"{daemon.name}.json"

    def pid(self, daemon: Daemon) -> int | None:
        """Return the pid of a daemon that runs, else None."""
        return noted_pid(self._note(daemon))

    def ready(self, daemon: Daemon) -> bool:
        """Say whether the daemon says that it is well."""
        if self.pid(daemon) is None:
            return False
        if daemon.name == "etcd":
            return answers(self.lab.port("etcd"))
        return Api(self.lab).healthy(daemon.name)

    def start(self, daemon: Daemon) -> bool:
        """Start a daemon and wait until it is well; False if it ran already. Raises LabError with its log."""
        if self.pid(daemon) is not None:
            if not wait_until(lambda: self.ready(daemon), START_SECONDS):
                raise LabError(f"{daemon.name} runs and is not well", log=self.log(daemon))
            return False
        for port in (name for name in recipe.PORTS if name.startswith(daemon.name)):
            check_port(port, self.lab.port(port))
        argv = [
            str(self.lab.bin / daemon.name),
            *(f"--{key}={value}" for key, value in daemon.options.items()),
        ]
        # The machine's proxies are none of the lab's business.
        spawn(argv, log=self.log(daemon), note=self._note(daemon), env={"PATH": "/usr/bin:/bin", "HOME": "/"})
        wait_until(lambda: self.pid(daemon) is None or self.ready(daemon), START_SECONDS)
        if not self.ready(daemon):
            state = "is not well" if self.pid(daemon) else "has ended"
            raise LabError(
                f"{daemon.name} {state} after its start",
                log=self.log(daemon),
                hint=f"scripts/kube-lab down --name {self.lab.name}, then up; or down --wipe to begin anew",
            )
        return True

    def stop(self, daemon: Daemon, *, seconds: float = 15) -> bool:
        """End a daemon and wait until it is gone; False if it did not run. After `seconds` it is killed."""
        pid = self.pid(daemon)
        if pid is not None:
            end_process(pid, seconds)
        self._note(daemon).unlink(missing_ok=True)
        return pid is not None


def write_kubeconfigs(lab: Lab) -> None:
    """Write the kubeconfigs of the daemons, the administrator and the default node."""
    for name in ("kube-controller-manager", "kube-scheduler"):
        kubeconfigs.for_daemon(lab, name)
    for who in ("admin", "node"):
        kubeconfigs.kubeconfig(lab, who)
