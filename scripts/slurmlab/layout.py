"""Where everything of a lab lies, and which lab the command line means."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..labkit.places import check_notes, lab_dir, read_notes, write_notes
from ..labkit.report import LabError
from . import releases


@dataclass(frozen=True)
class Lab:
    """One lab: its name, what it is made of, its ports and paths."""

    name: str
    release: releases.Release
    profile: releases.Profile
    port_base: int

    @property
    def dir(self) -> Path:
        return lab_dir(self.name)

    @property
    def root(self) -> Path:
        """The file system of the cluster, seen from outside."""
        return self.dir / "root"

    @property
    def run(self) -> Path:
        """Logs and state of the lab itself, apart from the cluster's."""
        return self.dir / "run"

    @property
    def shared(self) -> Path:
        """The directory that is /shared on all nodes."""
        return self.dir / "shared"

    @property
    def config(self) -> Path:
        """The adapter's configuration for this lab."""
        return self.dir / "config.yaml"

    @property
    def token_file(self) -> Path:
        """The token of the one user, where the profile has one instead of the key."""
        return self.dir / "token"

    @property
    def jwt_key(self) -> Path:
        return self.root / "etc/slurm/jwt_hs256.key"

    @property
    def rest_port(self) -> int:
        return self.port_base + releases.REST_PORT

    @property
    def ctld_port(self) -> int:
        return self.port_base + releases.CTLD_PORT

    @property
    def dbd_port(self) -> int:
        return self.port_base + releases.DBD_PORT

    @property
    def events_port(self) -> int:
        """Where the profile `spank`'s plugin posts its events; nothing of the lab listens there."""
        return self.port_base + releases.EVENTS_PORT

    @property
    def events_url(self) -> str:
        return f"http://127.0.0.1:{self.events_port}/spank/v1/events"

    @property
    def registry_port(self) -> int:
        return self.port_base + releases.REGISTRY_PORT

    def slurmd_port(self, node: str) -> int:
        return self.port_base + releases.SLURMD_PORT + releases.NODES.index(node)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.rest_port}"

    @property
    def registry(self) -> str:
        return f"127.0.0.1:{self.registry_port}"

    @property
    def options(self) -> list[str]:
        """The command-line options that mean this lab."""
        return [
            *("--version", self.release.version, "--profile", self.profile.name),
            *("--name", self.name, "--port-base", str(self.port_base)),
        ]

    def remember(self) -> None:
        """Note what the lab is made of, so that --name alone finds it again."""
        self.run.mkdir(parents=True, exist_ok=True)
        noted = {"version": self.release.version, "profile": self.profile.name, "port_base": self.port_base}
        write_notes(self.name, "slurm", noted)


def choose(version: str | None, profile: str | None, name: str | None, port_base: int | None) -> Lab:
    """Return the lab that the options mean; what is left out comes from the lab's own notes or the defaults.

    Raises LabError for an unknown version or profile, or if the lab exists and is made otherwise.
    """
    usual = os.environ.get("LAB_SLURM", "24.11")
    if name is None:
        name = "slurm-" + (version or usual) + ("" if profile in (None, "default") else f"-{profile}")
    given = {"version": version, "profile": profile, "port_base": port_base}
    noted = read_notes(name, "slurm")
    check_notes(noted, given, name, "slurm-lab")
    version = version or str(noted.get("version", usual))
    profile = profile or str(noted.get("profile", "default"))
    if version not in releases.RELEASES:
        raise LabError(f"--version {version}: there is {', '.join(releases.RELEASES)}")
    if profile not in releases.PROFILES:
        raise LabError(f"--profile {profile}: there is {', '.join(releases.PROFILES)}")
    release, site = releases.RELEASES[version], releases.PROFILES[profile]
    if port_base is None:
        port_base = int(str(noted.get("port_base", release.port_base + site.port_offset)))
    if not 1024 - releases.REGISTRY_PORT <= port_base <= 32000:
        raise LabError(f"--port-base {port_base}: between {1024 - releases.REGISTRY_PORT} and 32000, please")
    return Lab(name, release, site, port_base)
