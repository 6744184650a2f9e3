"""The command line of scripts/slurm-lab."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

from ..labkit.places import locked
from ..labkit.report import LabError
from . import cluster, furniture, status, tokens
from .daemons import REST_SOCKETS
from .layout import Lab, choose
from .namespace import Namespace, passwd_entry
from .roots import unpack_root


def _parser() -> argparse.ArgumentParser:
    which = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    which.add_argument("--version", metavar="V", help="Slurm's release: 24.11 or 26.05 ($LAB_SLURM, 24.11)")
    which.add_argument(
        "--profile", metavar="NAME", help="how the site is configured: default or plain (default)"
    )
    which.add_argument("--name", metavar="N", help="the lab's name (slurm-VERSION[-PROFILE])")
    which.add_argument("--port-base", metavar="P", type=int, help="slurmrestd listens on P+20")
    parser = argparse.ArgumentParser(
        prog="slurm-lab",
        description="A real Slurm cluster on loopback, from Debian packages.",
        parents=[which],
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, words: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=words, description=words, parents=[which])

    command("up", "bring the lab up; at once if it is")
    command("down", "end it").add_argument("--wipe", action="store_true", help="and remove its directory")
    shown = command("status", "daemons, nodes, partitions")
    shown.add_argument("--output", choices=("table", "json"), default="table")
    run = command("exec", "run a command inside; exit code and arguments pass unchanged")
    run.add_argument("--as", dest="user", default="root", metavar="USER")
    run.add_argument("argv", nargs="...", metavar="CMD")
    token = command("token", "print a token for slurmrestd")
    token.add_argument("user", metavar="USER")
    token.add_argument("--lifetime", type=int, default=3600, metavar="S", help="seconds; negative: expired")
    spec = command("spec", "print an OpenAPI specification as slurmrestd generates it; no daemon is needed")
    spec.add_argument("api_version", metavar="API", help="such as v0.0.42")
    spec.add_argument("--prefer-refs", action="store_true", help="ask for $ref instead of schemas in place")
    env = command("env", "print shell assignments for this lab")
    env.add_argument("--export", action="store_true", help="with export before each")
    for name, words in (("stop", "stop one daemon"), ("start", "start one daemon")):
        command(name, words).add_argument("daemon", metavar="DAEMON")
    again = command("restart", "restart one daemon, or all of Slurm's with their configuration written anew")
    again.add_argument("daemon", metavar="DAEMON", nargs="?")
    return parser


def _exec(lab: Lab, user: str, argv: list[str]) -> int:
    if argv[:1] == ["--"]:
        argv = argv[1:]
    if not argv:
        raise LabError("exec: which command?")
    terminal = {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}
    command = Namespace(lab).command(argv, user=user, env=terminal, login=True)
    sys.stdout.flush()
    os.execvp(command[0], command)


def _spec(lab: Lab, api_version: str, prefer_refs: bool) -> int:
    with locked(lab.name):
        if not lab.root.exists():
            unpack_root(lab)
            lab.remember()
        if not lab.jwt_key.exists():
            furniture.furnish(lab)
    parser = api_version + ("+prefer_refs" if prefer_refs else "")
    uid, gid, _, _ = passwd_entry(lab.root, "restd")  # slurmrestd refuses to run as root
    command = [
        *(
            "chroot",
            f"--userspec={uid}:{gid}",
            str(lab.root),
            "/usr/sbin/slurmrestd",
            "--generate-openapi-spec",
        ),
        *("-d", parser, "-s", "slurmctld,slurmdbd"),
    ]
    done = subprocess.run(
        command, env={"PATH": "/usr/sbin:/usr/bin"}, capture_output=True, stdin=subprocess.DEVNULL
    )
    if done.returncode or not done.stdout.strip():
        raise LabError(f"slurmrestd makes no specification for {parser}: {done.stderr.decode().strip()}")
    sys.stdout.buffer.write(done.stdout)
    return 0


def _env(lab: Lab, export: bool) -> int:
    wrapper = Path(__file__).resolve().parents[1] / "slurm-lab"
    values = {
        "SLURMREST_CONFIG": str(lab.config),
        "LAB_NAME": lab.name,
        "LAB_VERSION": lab.release.version,
        "LAB_PROFILE": lab.profile.name,
        "LAB_DIR": str(lab.dir),
        "LAB_ROOT": str(lab.root),
        "LAB_SHARED": str(lab.shared),
        "LAB_REST": lab.endpoint,
        "LAB_REST_SOCKET": str(lab.root) + REST_SOCKETS["slurmrestd-local"],
        "LAB_JWT_KEY": str(lab.jwt_key),
        "LAB_REGISTRY": lab.registry,
        **({"LAB_SPANK_EVENTS": lab.events_url} if lab.profile.spank else {}),
        "SLURM_LAB": shlex.join([str(wrapper), "--name", lab.name]),
    }
    for key, value in values.items():
        print(f"{'export ' if export else ''}{key}={shlex.quote(value)}")
    return 0


def main(arguments: list[str]) -> int:
    """Do what the command line says and return the exit code."""
    options = _parser().parse_args(arguments)
    given = vars(options)
    lab = choose(given.get("version"), given.get("profile"), given.get("name"), given.get("port_base"))
    match options.command:
        case "up":
            fresh = cluster.up(lab)
            print(f"{lab.name} {'is up' if fresh else 'was up'}: {lab.endpoint}, configuration {lab.config}")
        case "down":
            if not cluster.down(lab, wipe=options.wipe):
                print(f"{lab.name} was not up")
        case "status":
            found = status.status(lab)
            print(status.as_json(found) if options.output == "json" else status.as_table(found))
            return 0 if found["up"] else 3
        case "exec":
            return _exec(lab, options.user, options.argv)
        case "token":
            if not lab.jwt_key.exists():
                raise LabError(f"the lab {lab.name} has no key yet", hint="scripts/slurm-lab up")
            print(tokens.mint_from(lab.jwt_key, options.user, options.lifetime))
        case "spec":
            return _spec(lab, options.api_version, options.prefer_refs)
        case "env":
            return _env(lab, options.export)
        case "stop":
            cluster.stop_daemon(lab, options.daemon)
        case "start":
            cluster.start_daemon(lab, options.daemon)
        case "restart":
            cluster.restart(lab, options.daemon)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LabError as error:
        print(f"slurm-lab: {error}", file=sys.stderr)
        sys.exit(1)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"slurm-lab: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
