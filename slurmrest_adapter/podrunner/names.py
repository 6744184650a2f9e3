"""The files of names that every container of a pod sees: /etc/hosts, resolv.conf and hostname.

The node's own lines come first: the pod is on the node's network.
"""

import os
from typing import Dict, List, Optional

from . import process
from .plan import Dns, Plan
from .volumes import Bound

_HOSTS, _RESOLVER, _HOSTNAME = "/etc/hosts", "/etc/resolv.conf", "/etc/hostname"
_DIRECTORY = "etc"
_MOST_NAMESERVERS = 3  # that the C library reads
# No packet is sent there: it only shows which of its addresses the node would use.
_ELSEWHERE = ("192.0.2.1", 9)


def write(plan: Plan, directory: str, hostname: bool) -> List[Bound]:
    """Write the pod's files below `directory` and answer their mounts; raises OSError.

    `hostname`: also the one that Apptainer would write itself.
    """
    home = os.path.join(directory, _DIRECTORY)
    os.makedirs(home, 0o755, exist_ok=True)
    texts = {_HOSTS: hosts(plan, _read(_HOSTS), process.apart(address))}
    texts[_RESOLVER] = resolver(plan.dns, _read(_RESOLVER))
    if hostname and plan.hostname:
        texts[_HOSTNAME] = plan.hostname + "\n"
    mounts = []
    for target, text in texts.items():
        path = os.path.join(home, os.path.basename(target))
        with open(path, "wb") as stream:
            stream.write(text.encode("utf-8", "surrogateescape"))
        os.chmod(path, 0o644)
        mounts.append(Bound(path, target, False))
    return mounts


def hosts(plan: Plan, node: str, mine: str) -> str:
    """The text of /etc/hosts; `node` is the node's own, `mine` the address of the pod's own name."""
    lines = [node.rstrip("\n")] if node.strip() else ["127.0.0.1\tlocalhost", "::1\tlocalhost"]
    if plan.hostname:
        lines.append("{}\t{}".format(mine, plan.hostname))
    lines += ["\t".join([address, *known]) for address, known in plan.host_aliases]
    return "\n".join(lines) + "\n"


def resolver(dns: Optional[Dns], node: str) -> str:
    """The text of resolv.conf, joined as the kubelet does; of one option the last value stands."""
    if dns is None:
        return node
    nameservers: List[str] = []
    searches: List[str] = []
    options: Dict[str, str] = {}
    for line in node.splitlines() if dns.node else []:
        words = line.split()
        if words[:1] == ["nameserver"]:
            nameservers += words[1:2]
        elif words[:1] in (["search"], ["domain"]):
            searches = words[1:]
        elif words[:1] == ["options"]:
            options.update((word.partition(":")[0], word) for word in words[1:])
    nameservers += [each for each in dns.nameservers if each not in nameservers]
    searches += [each for each in dns.searches if each not in searches]
    options.update((word.partition(":")[0], word) for word in dns.options)
    lines = ["nameserver " + each for each in nameservers[:_MOST_NAMESERVERS]]
    lines += ["search " + " ".join(searches)] if searches else []
    lines += ["options " + " ".join(options.values())] if options else []
    return "\n".join(lines) + "\n"


def address() -> str:
    """The node's address towards the world; a loopback one if it has none."""
    import socket  # large, and not needed again

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.1.1"


def _read(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "surrogateescape")
    except OSError:
        return ""
