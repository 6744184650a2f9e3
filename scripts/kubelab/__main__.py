"""The command line of scripts/kube-lab."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

from ..labkit.report import LabError
from . import cluster, kubectl, pki, recipe, status
from .api import ApiError
from .kubeconfigs import kubeconfig
from .layout import Lab, choose


def _parser() -> argparse.ArgumentParser:
    which = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    which.add_argument("--name", metavar="N", help="the lab's name (kube)")
    which.add_argument("--port-base", metavar="P", type=int, help="the API server listens on P+43")
    parser = argparse.ArgumentParser(
        prog="kube-lab",
        description="A real Kubernetes control plane on loopback, built from Debian's source package.",
        parents=[which],
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, words: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=words, description=words, parents=[which], allow_abbrev=False)

    command("up", "bring the lab up; at once if it is")
    command("down", "end it").add_argument("--wipe", action="store_true", help="and remove its directory")
    shown = command("status", "daemons and nodes; exit code 3 if not up")
    shown.add_argument("--output", choices=("table", "json"), default="table")
    config = command("kubeconfig", "print the path of a kubeconfig")
    config.add_argument(
        "--as",
        dest="who",
        default="admin",
        metavar="WHO",
        help="admin, provider (a service account), node[:NAME], user:NAME[:GROUP...]",
    )
    run = command(
        "kubectl", "run kubectl as the administrator, the newest Debian has; all that follows is its own"
    )
    run.add_argument("--old", action="store_true", help=f"Debian {recipe.KUBECTL_OLD[0]}'s")
    serving = command(
        "kubelet-cert", "write tls.crt, tls.key and the clients' ca.crt for a node's kubelet API"
    )
    serving.add_argument("node", metavar="NODE")
    serving.add_argument("directory", metavar="DIR", type=Path)
    env = command("env", "print shell assignments for this lab")
    env.add_argument("--export", action="store_true", help="with export before each")
    for name, words in (("stop", "stop one daemon"), ("start", "start one daemon")):
        command(name, words).add_argument("daemon", metavar="DAEMON")
    return parser


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return our own arguments and those of kubectl, which are never ours to read."""
    if "kubectl" not in arguments:
        return arguments, []
    at = arguments.index("kubectl") + 1
    while at < len(arguments):
        word = arguments[at]
        if word in ("--name", "--port-base"):
            at += 2
        elif word in ("--old", "-h", "--help") or word.startswith(("--name=", "--port-base=")):
            at += 1
        else:
            break
    rest = arguments[at:]
    return arguments[:at], rest[1:] if rest[:1] == ["--"] else rest


def _kubectl(lab: Lab, old: bool, arguments: list[str]) -> int:
    program = kubectl.kubectl(old=old)
    env = {**os.environ, "KUBECONFIG": str(kubeconfig(lab, "admin"))}
    sys.stdout.flush()
    os.execve(program, ["kubectl", *arguments], env)


def _env(lab: Lab, export: bool) -> int:
    wrapper = Path(__file__).resolve().parents[1] / "kube-lab"
    values = {
        "KUBECONFIG": str(kubeconfig(lab, "admin")),
        "KUBE_LAB": shlex.join([str(wrapper), "--name", lab.name]),
        "KUBE_LAB_NAME": lab.name,
        "KUBE_LAB_DIR": str(lab.dir),
        "KUBE_LAB_SERVER": lab.server,
        "KUBE_LAB_CA": str(lab.pki / "ca.crt"),
        "KUBE_LAB_KUBECTL": str(kubectl.kubectl()),
        "KUBE_LAB_KUBECTL_OLD": str(kubectl.kubectl(old=True)),
        "KUBE_LAB_NODE": recipe.NODE,
        "KUBE_LAB_NODE_KUBECONFIG": str(kubeconfig(lab, "node")),
        "KUBE_LAB_PROVIDER_KUBECONFIG": str(kubeconfig(lab, "provider")),
        "KUBE_LAB_KUBELET_CERTS": str(lab.kubelet),
        # For the adapter's configuration, over that of the Slurm lab.
        "SLURMREST_NODE__NAME": recipe.NODE,
        "SLURMREST_NODE__KUBECONFIG": str(kubeconfig(lab, "node")),
        "SLURMREST_NODE__KUBELET_PORT": str(lab.kubelet_port),
    }
    for key, value in values.items():
        print(f"{'export ' if export else ''}{key}={shlex.quote(value)}")
    return 0


def main(arguments: list[str]) -> int:
    """Do what the command line says and return the exit code."""
    ours, theirs = split(arguments)
    options = _parser().parse_args(ours)
    given = vars(options)
    lab = choose(given.get("name"), given.get("port_base"))
    match options.command:
        case "up":
            fresh = cluster.up(lab)
            path = kubeconfig(lab, "admin")
            print(f"{lab.name} {'is up' if fresh else 'was up'}: {lab.server}, kubeconfig {path}")
        case "down":
            if not cluster.down(lab, wipe=options.wipe):
                print(f"{lab.name} was not up")
        case "status":
            found = status.status(lab)
            print(status.as_json(found) if options.output == "json" else status.as_table(found))
            return 0 if found["up"] else 3
        case "kubeconfig":
            print(kubeconfig(lab, options.who))
        case "kubectl":
            return _kubectl(lab, options.old, theirs)
        case "kubelet-cert":
            kubeconfig(lab, "admin")  # says so if the lab was never up
            pki.kubelet_certificate(lab, options.node, options.directory)
        case "env":
            return _env(lab, options.export)
        case "stop":
            cluster.stop_daemon(lab, options.daemon)
        case "start":
            cluster.start_daemon(lab, options.daemon)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (LabError, ApiError, OSError, subprocess.CalledProcessError) as error:
        print(f"kube-lab: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
