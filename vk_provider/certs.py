"""The kubelet API's serving certificate.

The right one is asked for by a CertificateSigningRequest for the signer
``kubernetes.io/kubelet-serving``, which a site approves (``kubectl certificate approve``). Until
it comes a self-signed one serves, which API servers that do not verify kubelets accept; the
listening context takes the new one over without a restart. Key and certificate stay in a 0700
directory, so that a restart asks for nothing.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from slurmrest_adapter.domain.errors import ConfigError
from vk_provider.kube import KubeClient, KubeError, NotFound, path

log = structlog.get_logger(__name__)

SIGNER = "kubernetes.io/kubelet-serving"
USAGES = ["digital signature", "key encipherment", "server auth"]  # exactly these
REQUESTS = path("apis", "certificates.k8s.io", "v1", "certificatesigningrequests")
LOOK_S = 5.0
_SELF_SIGNED_DAYS = 365


class ServingCertificate:
    """Key and certificate of one node's kubelet API.

    Args:
        directory: holds ``tls.key`` and ``tls.crt``, a site's own or those made here; made 0700.
        node: the node's name; the certificate is for ``system:node:NODE``.
        address: the IP address it serves on.
        client_ca: PEM file of the cluster's CA; clients must show a certificate of it.
    """

    def __init__(self, directory: Path, node: str, address: str, client_ca: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._node, self._address = node, address
        self._key_file, self._cert_file = directory / "tls.key", directory / "tls.crt"
        self._request_file = directory / "request"  # name of the request that waits for its approval
        self._key = self._load_key()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.load_verify_locations(cafile=str(client_ca))
        if self._current() is None:
            self._install(self._self_signed())
        self.context.load_cert_chain(str(self._cert_file), str(self._key_file))

    def run(self, api: KubeClient, stop: threading.Event, look_s: float = LOOK_S) -> None:
        """Ask for a signed certificate when there is none or its time is nearly over."""
        while not stop.is_set():
            wait = 3600.0
            if self._is_due():
                try:
                    pem = self._ask(api, lambda: stop.wait(look_s))
                except KubeError as error:
                    log.warning("no signed serving certificate", error=str(error))
                    wait = 60.0
                else:
                    if pem is not None:
                        self._install(pem)
                        self.context.load_cert_chain(str(self._cert_file), str(self._key_file))
                        log.info("serving certificate signed")
            stop.wait(wait)

    def _ask(self, api: KubeClient, wait: Callable[[], bool]) -> bytes | None:
        """Make a request and wait for its certificate; None when told to stop or denied."""
        body = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": f"kubelet-serving-{self._node}-"},
            "spec": {
                "request": base64.b64encode(self._request()).decode(),
                "signerName": SIGNER,
                "usages": USAGES,
            },
        }
        name = self._pending(api)
        if name is None:
            name = str(api.create(REQUESTS, body)["metadata"]["name"])
            _replace(self._request_file, name.encode())
        log.info("serving certificate asked for; it has to be approved", request=name)
        while True:
            try:
                status = api.get(f"{REQUESTS}{path(name)}").get("status") or {}
            except NotFound:
                log.warning("the request for a serving certificate is gone", request=name)
                return None
            if status.get("certificate"):
                return base64.b64decode(status["certificate"])
            if any(each.get("type") in ("Denied", "Failed") for each in status.get("conditions") or ()):
                log.warning("the request for a serving certificate was denied", request=name)
                return None
            if wait():
                return None

    def _pending(self, api: KubeClient) -> str | None:
        """A request of ours from before that may still be approved: a restart makes no second one."""
        try:
            name = self._request_file.read_text(encoding="utf-8")
            found = api.get(f"{REQUESTS}{path(name)}")
            asked = x509.load_pem_x509_csr(base64.b64decode(found["spec"]["request"]))
        except (OSError, NotFound, ValueError, KeyError):
            return None
        good = asked.public_key() == self._key.public_key() and asked.subject == self._subject()
        return name if good and not (found.get("status") or {}).get("conditions") else None

    def _subject(self) -> x509.Name:
        return x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
                x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{self._node}"),
            ]
        )

    def _names(self) -> x509.SubjectAlternativeName:
        return x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address(self._address)), x509.DNSName(self._node)]
        )

    def _request(self) -> bytes:
        builder = x509.CertificateSigningRequestBuilder().subject_name(self._subject())
        signed = builder.add_extension(self._names(), critical=False).sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    def _self_signed(self) -> bytes:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(self._subject())
            .issuer_name(self._subject())
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=_SELF_SIGNED_DAYS))
            .add_extension(self._names(), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    def _load_key(self) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
        try:
            found = serialization.load_pem_private_key(self._key_file.read_bytes(), None)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self._key_file} is no key that can be read: {error}") from error
        except FileNotFoundError:
            key = ec.generate_private_key(ec.SECP256R1())
            pem = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            _replace(self._key_file, pem)
            return key
        if not isinstance(found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ConfigError(f"{self._key_file}: an elliptic curve or RSA key is needed")
        return found

    def _current(self) -> x509.Certificate | None:
        """The certificate at hand, if it is of our key and its time is not over."""
        try:
            found = x509.load_pem_x509_certificate(self._cert_file.read_bytes())
        except (OSError, ValueError):
            return None
        ours = found.public_key() == self._key.public_key()
        return found if ours and found.not_valid_after_utc > datetime.now(UTC) else None

    def _is_for_address(self, found: x509.Certificate) -> bool:
        try:
            names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return False
        return ipaddress.ip_address(self._address) in names.get_values_for_type(x509.IPAddress)

    def _is_due(self) -> bool:
        found = self._current()
        if found is None or found.issuer == found.subject or not self._is_for_address(found):
            return True
        life = found.not_valid_after_utc - found.not_valid_before_utc
        return datetime.now(UTC) > found.not_valid_before_utc + life * 0.8

    def _install(self, pem: bytes) -> None:
        _replace(self._cert_file, pem)


def _replace(where: Path, content: bytes) -> None:
    """Write whole or not at all, readable by us alone."""
    beside = where.with_name(where.name + ".new")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    beside.replace(where)
