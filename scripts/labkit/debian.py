"""Debian packages from the mirror that apt on this machine uses, without touching apt's own state."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

from .report import LabError, say

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def mirror() -> str:
    """Return the Debian mirror that apt on this machine uses. Raises LabError if apt knows none."""
    found = _mirrors()
    if not found:  # apt names a source only once it has fetched its lists
        say("apt has no package lists: apt-get update")
        subprocess.run(["apt-get", "-qq", "update"], stdout=subprocess.DEVNULL, check=False)
        found = _mirrors()
    if not found:
        raise LabError("apt knows no Debian mirror", hint="put one into /etc/apt/sources.list")
    return found.most_common(1)[0][0]


def _mirrors() -> Counter[str]:
    """Count the sources of packages in a component main, by address."""
    wanted = ("Created-By: Packages", "Component: main")
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return Counter(uri for uri in listed if "security" not in uri)


def proxies() -> list[str]:
    """Return this machine's apt proxy settings, as apt would write them."""
    dumped = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout
    return [line for line in dumped.splitlines() if re.match(r"Acquire::https?::Proxy ", line)]


class Apt:
    """An apt of its own in a directory: one suite, nothing installed, so that versions are the suite's."""

    def __init__(self, directory: Path, suite: str, *, sources: bool = False) -> None:
        self.directory = directory
        self.suite = suite
        for name in ("state/lists/partial", "cache/archives/partial"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        # Packages installed here are none of the suite's business: one of the same name would be preferred.
        (directory / "status").write_text("")
        kinds = ("deb", "deb-src") if sources else ("deb",)
        lines = [f"{kind} [signed-by={KEYRING}] {mirror()} {suite} main\n" for kind in kinds]
        (directory / "sources.list").write_text("".join(lines))
        self._run("update")

    def download(self, *packages: str) -> list[Path]:
        """Fetch binary packages of the suite and return the files."""
        return self._fetch(["download", *packages], "*.deb")

    def source(self, package: str) -> Path:
        """Fetch a source package and return its .dsc; the files it names lie beside it."""
        return self._fetch(["source", "--download-only", package], "*.dsc")[0]

    def _fetch(self, arguments: list[str], pattern: str) -> list[Path]:
        into = self.directory / "files"
        into.mkdir(exist_ok=True)
        before = set(into.glob(pattern))
        self._run(*arguments, cwd=into)
        fresh = sorted(set(into.glob(pattern)) - before)
        if not fresh:
            raise LabError(f"apt brought no {pattern} for {' '.join(arguments)} of Debian {self.suite}")
        return fresh

    def _run(self, *arguments: str, cwd: Path | None = None) -> None:
        # Options on the command line win over every file of apt's configuration; its proxies stay.
        settings = {
            "Dir::State": self.directory / "state",
            "Dir::State::lists": self.directory / "state/lists",
            "Dir::State::status": self.directory / "status",
            "Dir::Cache": self.directory / "cache",
            "Dir::Etc::sourcelist": self.directory / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Acquire::Languages": "none",
            # A clock that runs ahead makes a release file look stale; signatures stay checked.
            "Acquire::Check-Valid-Until": "false",
            # The directory is ours alone; the user _apt could not write there.
            "APT::Sandbox::User": "root",
        }
        options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
        done = subprocess.run(
            ["apt-get", "-qq", *options, *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            words = "\n".join(done.stdout.strip().splitlines()[-8:])
            raise LabError(
                f"apt-get {' '.join(arguments)} (Debian {self.suite}) failed: {words}",
                hint="check that apt's mirror can be reached (apt-get update), then run it again",
            )


def unpack(packages: list[Path], into: Path) -> None:
    """Unpack binary packages into a directory, running none of their scripts."""
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", str(package), str(into)], check=True)
