"""Where everything of a lab lies, and which lab the command line means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..labkit.places import check_notes, lab_dir, read_notes, write_notes
from ..labkit.report import LabError
from . import recipe


@dataclass(frozen=True)
class Lab:
    """One lab: its name, ports and paths."""

    name: str
    port_base: int

    @property
    def dir(self) -> Path:
        return lab_dir(self.name)

    @property
    def bin(self) -> Path:
        """The control plane's programs."""
        return self.dir / "bin"

    @property
    def pki(self) -> Path:
        """Keys and certificates; the owner's alone."""
        return self.dir / "pki"

    @property
    def kubeconfigs(self) -> Path:
        return self.dir / "kubeconfigs"

    @property
    def kubelet(self) -> Path:
        """The serving certificate of the default node: tls.crt, tls.key, and ca.crt of its clients."""
        return self.dir / "kubelet"

    @property
    def run(self) -> Path:
        """Which processes the daemons are."""
        return self.dir / "run"

    @property
    def log(self) -> Path:
        return self.dir / "log"

    @property
    def complete(self) -> Path:
        """There while the lab is up as a whole."""
        return self.run / "complete"

    def port(self, daemon: str) -> int:
        return self.port_base + recipe.PORTS[daemon]

    @property
    def kubelet_port(self) -> int:
        """A port kept free for the kubelet API of the provider under test."""
        return self.port_base + recipe.KUBELET_PORT

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port('kube-apiserver')}"

    def make_directories(self) -> None:
        """Make the lab's directories and note what it is."""
        for path, mode in (
            (self.dir, 0o755),
            (self.pki, 0o700),
            (self.kubeconfigs, 0o700),
            (self.kubelet, 0o700),
            (self.run, 0o755),
            (self.log, 0o755),
            (self.dir / "etcd", 0o700),
        ):
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(mode)
        write_notes(self.name, "kube", {"port_base": self.port_base})


def choose(name: str | None, port_base: int | None) -> Lab:
    """Return the lab that the options mean; what is left out comes from the lab's own notes or the defaults.

    Raises LabError if the lab exists and is of another kind or with other ports.
    """
    name = name or "kube"
    noted = read_notes(name, "kube")
    check_notes(noted, {"port_base": port_base}, name, "kube-lab")
    if port_base is None:
        port_base = int(str(noted.get("port_base", recipe.PORT_BASE)))
    if not 1024 <= port_base <= 32000:
        raise LabError(f"--port-base {port_base}: between 1024 and 32000, please")
    return Lab(name, port_base)
