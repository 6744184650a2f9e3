"""The plugin as a file: what it shows, how it is hardened, how it comes to a site."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.labs import ROOT
from tests.slurm.spank.conftest import SOURCES

pytestmark = pytest.mark.slurm
SYMBOLS = {
    *("plugin_name", "plugin_type", "plugin_version", "spank_plugin_version"),
    *("slurm_spank_init", "slurm_spank_init_post_opt", "slurm_spank_task_post_fork", "slurm_spank_task_exit"),
    *("slurm_spank_exit", "slurm_spank_job_prolog", "slurm_spank_job_epilog"),
}
# Neither threads, nor children, nor what may block on a name server or change the process.
FORBIDDEN = {
    *("fork", "vfork", "clone", "posix_spawn", "system", "popen", "execve", "pthread_create"),
    *(
        "getaddrinfo",
        "gethostbyname",
        "setenv",
        "putenv",
        "unsetenv",
        "signal",
        "sigaction",
        "setlocale",
        "chdir",
    ),
    *("umask", "exit", "_exit", "abort"),
}


def told(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_only_its_own_symbols_are_exported(plugin: Path) -> None:
    lines = told("nm", "-D", "--defined-only", str(plugin)).splitlines()
    assert {line.split()[-1].split("@")[0] for line in lines} == SYMBOLS


def test_it_calls_nothing_that_would_be_felt(plugin: Path) -> None:
    lines = told("nm", "-D", "--undefined-only", str(plugin)).splitlines()
    assert not {line.split()[-1].split("@")[0] for line in lines} & FORBIDDEN


def test_it_is_hardened(plugin: Path) -> None:
    headers = told("readelf", "-W", "-l", "-d", str(plugin))
    assert "GNU_RELRO" in headers
    assert re.search(r"BIND_NOW|FLAGS.*NOW", headers)
    assert re.search(r"GNU_STACK\s+\S+ \S+ \S+ \S+ \S+ RW ", headers)
    symbols = told("nm", "-D", str(plugin))
    assert "__stack_chk_fail" in symbols
    assert re.search(r"__\w+_chk\b", symbols.replace("__stack_chk_fail", ""))


def test_it_needs_libc_only(plugin: Path) -> None:
    needed = re.findall(r"NEEDED.*\[(.*)\]", told("readelf", "-d", str(plugin)))
    assert needed == ["libc.so.6"]


def test_make_install(include: Path, tmp_path: Path) -> None:
    order = ["make", "-s", "-C", str(SOURCES), f"BUILD={tmp_path}/build", f"SLURM_INC={include}"]
    subprocess.run([*order, "install", f"DESTDIR={tmp_path}/to", "PREFIX=/opt/slurm"], check=True)
    installed = tmp_path / "to/opt/slurm/lib/slurm/slurmrest_adapter.so"
    assert oct(installed.stat().st_mode) == "0o100755"


def test_the_wheel_carries_the_sources(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    [wheel] = tmp_path.glob("*.whl")
    carried = {
        Path(name).name
        for name in zipfile.ZipFile(wheel).namelist()
        if name.startswith("slurmrest_adapter/spank/")
    }
    wanted = {
        path.name
        for path in SOURCES.iterdir()
        if path.suffix in (".c", ".h", ".example") or path.name == "Makefile"
    }
    assert wanted <= carried
    assert not [name for name in carried if name.endswith((".o", ".so"))]
