"""Keys and certificates of a lab: three authorities and what they sign. Made by openssl, once."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ..labkit.places import locked
from ..labkit.report import LabError
from . import recipe
from .layout import Lab

_DAYS = "3650"
# Without a configuration of its own, openssl would add the extensions of the machine's.
_CONFIG = "[req]\ndistinguished_name = dn\n[dn]\n"
_LOOPBACK = ("IP:127.0.0.1", "DNS:localhost")
_SERVICE = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


def make(lab: Lab) -> None:
    """Make all that the daemons need and is not there yet."""
    (lab.pki / "openssl.cnf").write_text(_CONFIG)
    for name in ("ca", "etcd-ca", "front-ca"):
        usage = "keyUsage=critical,digitalSignature,keyCertSign,cRLSign"
        _certificate(lab, lab.pki / name, f"/CN=lab-{name}", ["basicConstraints=critical,CA:TRUE", usage])
    service = (f"IP:{recipe.SERVICE_IP}", *(f"DNS:{name}" for name in _SERVICE))
    signed(lab, "etcd", "/CN=etcd", names=_LOOPBACK, client=True, authority="etcd-ca")
    signed(lab, "etcd-client", "/CN=kube-apiserver", client=True, authority="etcd-ca")
    signed(lab, "front-proxy", "/CN=front-proxy-client", client=True, authority="front-ca")
    signed(lab, "kube-apiserver", "/CN=kube-apiserver", names=_LOOPBACK + service)
    # What the API server is to kubelets.
    signed(lab, "kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client", client=True)
    for name in ("kube-controller-manager", "kube-scheduler"):
        signed(lab, name, f"/CN=system:{name}", names=_LOOPBACK, client=True)
    if not (lab.pki / "service-accounts.key").exists():
        _openssl("genrsa", "-out", str(lab.pki / "service-accounts.key.new"), "2048")
        (lab.pki / "service-accounts.key.new").rename(lab.pki / "service-accounts.key")


def signed(
    lab: Lab,
    name: str,
    subject: str,
    *,
    names: tuple[str, ...] = (),
    client: bool = False,
    authority: str = "ca",
) -> Path:
    """Return the path, without .crt and .key, of a certificate; it is made if it is not there.

    `names` (such as DNS:localhost) make it one for serving, `client` one for clients; it may be both.
    """
    path = lab.pki / name
    usages = (["serverAuth"] if names else []) + (["clientAuth"] if client else [])
    extensions = [
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature,keyEncipherment",
        "extendedKeyUsage=" + ",".join(usages),
        "authorityKeyIdentifier=keyid",
    ]
    if names:
        extensions.append("subjectAltName=" + ",".join(names))
    _certificate(lab, path, subject, extensions, lab.pki / authority)
    return path


def kubelet_certificate(lab: Lab, node: str, into: Path) -> None:
    """Write tls.crt, tls.key and ca.crt, the authority of its clients too, for a node's kubelet API."""
    subject = f"/O=system:nodes/CN=system:node:{node}"
    path = signed(lab, f"kubelet-{node}", subject, names=(*_LOOPBACK, f"DNS:{node}"))
    into.mkdir(parents=True, exist_ok=True)
    for name, source, mode in (
        ("tls.crt", path.with_name(path.name + ".crt"), 0o644),
        ("tls.key", path.with_name(path.name + ".key"), 0o600),
        ("ca.crt", lab.pki / "ca.crt", 0o644),
    ):
        target = into / name
        target.touch(mode)
        target.chmod(mode)
        target.write_bytes(source.read_bytes())


def _certificate(
    lab: Lab, path: Path, subject: str, extensions: list[str], authority: Path | None = None
) -> None:
    """Make path.key and path.crt, signed by an authority or by itself."""
    key, certificate = path.with_name(path.name + ".key"), path.with_name(path.name + ".crt")
    if certificate.exists():
        return
    with locked(f"{lab.name}-pki"):  # two at once would mix up key and certificate
        if certificate.exists():
            return
        fresh = certificate.with_name(certificate.name + ".new")
        by = ("-CA", f"{authority}.crt", "-CAkey", f"{authority}.key") if authority else ()
        _openssl(
            *("req", "-x509", "-config", str(lab.pki / "openssl.cnf"), "-days", _DAYS, "-subj", subject),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", str(key)),
            *by,
            *(part for line in ["subjectKeyIdentifier=hash", *extensions] for part in ("-addext", line)),
            *("-out", str(fresh)),
        )
        key.chmod(0o600)
        fresh.rename(certificate)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise LabError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
