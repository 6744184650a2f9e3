"""A provider between a Kubernetes API server and a sidecar that are both in memory."""

from __future__ import annotations

import datetime
import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes.client
import pytest
import requests
import requests.adapters
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from slurmrest_adapter.config import Settings
from tests.fakes.kube_api import FakeKubeApi
from tests.fakes.sidecar import FakeSidecar
from vk_provider.provider import Options, Provider

NODE = "vnode"
SECONDS = 15.0


def until(found: Callable[[], Any], what: str = "") -> Any:
    """Ask until the answer is true."""
    deadline = time.monotonic() + SECONDS
    while not (answer := found()):
        assert time.monotonic() < deadline, what or "it never came true"
        time.sleep(0.01)
    return answer


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    """A pod bound to the node, with one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {
            "nodeName": NODE,
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "busybox"}],
            **spec,
        },
    }


class Authority:
    """A cluster's CA, and certificates of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cluster-ca")])
        builder = self._builder(self._name, self._key.public_key())
        basic = x509.BasicConstraints(ca=True, path_length=None)
        made = builder.add_extension(basic, critical=True).sign(self._key, hashes.SHA256())
        self.file = directory / "ca.crt"
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def client(self, user: str) -> tuple[str, str]:
        """Certificate and key of a user, as files."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
        made = self._builder(name, key.public_key()).sign(self._key, hashes.SHA256())
        cert_file, key_file = self.directory / f"{user}.crt", self.directory / f"{user}.key"
        cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(cert_file), str(key_file)

    def sign(self, request: bytes) -> bytes:
        """What the cluster's signer answers to a request."""
        asked = x509.load_pem_x509_csr(request)
        builder = self._builder(asked.subject, asked.public_key())
        for extension in asked.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _builder(self, name: x509.Name, key: Any) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


class _AnyCertificate(requests.adapters.HTTPAdapter):
    """The API server by default does not verify a kubelet."""

    def __init__(self, cert: tuple[str, str] | None) -> None:
        self._cert = cert
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if self._cert:
            context.load_cert_chain(*self._cert)
        super().init_poolmanager(*args, ssl_context=context, **options)


@dataclass
class World:
    """Everything around a provider, which can be started, ended and started again."""

    api: FakeKubeApi
    sidecar: FakeSidecar
    ca: Authority
    directory: Path
    options: Options
    provider: Provider | None = None

    def start(self) -> Provider:
        config = kubernetes.client.Configuration(host=self.api.url)
        config.ssl_ca_cert = str(self.ca.file)
        settings = Settings(
            listen={"plugin": self.sidecar.listen},  # type: ignore[arg-type]
            node={"name": NODE, "kubelet_port": 0},  # type: ignore[arg-type]
            state_dir=self.directory,
        )
        self.provider = Provider(settings, config, self.options)
        self.provider.start()
        return self.provider

    def stop(self) -> None:
        if self.provider is not None:
            self.provider.stop()
            self.api.break_watches()
        self.provider = None

    def kubelet(self, path: str, user: str = "apiserver", **options: Any) -> requests.Response:
        """GET from the kubelet API, as the API server would; "" brings no certificate."""
        assert self.provider is not None
        session = requests.Session()
        session.trust_env = False
        session.mount("https://", _AnyCertificate(self.ca.client(user) if user else None))
        url = f"https://127.0.0.1:{self.provider.kubelet_port}{path}"
        return session.get(url, verify=False, timeout=SECONDS, **options)

    def phase(self, name: str = "p") -> str:
        found = self.api.pod(name)
        return "" if found is None else str(found["status"]["phase"])

    def job(self, name: str = "p") -> Any:
        """The pod's job, once there is one."""
        until(lambda: any(j.pod["metadata"]["name"] == name for j in self.sidecar.jobs.values()), "no job")
        return self.sidecar.job(name)

    def run(self, **spec: Any) -> Any:
        """A pod that runs; answers its job."""
        self.api.add_pod(pod(**spec))
        job = self.job()
        self.sidecar.start(job)
        until(lambda: self.phase() == "Running")
        return job


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def world(tmp_path: Path, authority: Authority) -> Iterator[World]:
    """Both sides; the provider is not started yet."""
    socket = Path("/tmp") / f"vk-{uuid.uuid4().hex[:12]}.sock"
    options = Options(workers=4, poll_s=0.05, ping_s=0.05, lease_s=0.05, retry_s=(0.05, 0.2))
    with FakeKubeApi() as api, FakeSidecar(socket) as sidecar:
        api.allowed.add("apiserver")
        made = World(api, sidecar, authority, tmp_path, options)
        yield made
        made.stop()
    socket.unlink(missing_ok=True)
