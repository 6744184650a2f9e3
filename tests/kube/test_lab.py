"""The lab itself: what the other tests of this layer stand on."""

from __future__ import annotations

import base64
import http.server
import json
import re
import shlex
import ssl
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kube

KUBE_LAB = Path(__file__).parents[2] / "scripts" / "kube-lab"
SIDECAR_PROBE = {"exec": {"command": ["true"]}, "periodSeconds": 7}


def lab(*arguments: str, code: int = 0, text: str | None = None) -> str:
    """Run scripts/kube-lab, check its exit code and return what it printed; on failure its complaint."""
    done = subprocess.run([KUBE_LAB, *arguments], capture_output=True, text=True, input=text)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def settings() -> dict[str, str]:
    """Return what `env` prints."""
    return dict(word.split("=", 1) for word in shlex.split(lab("env")))


def found(*arguments: str) -> dict[str, Any]:
    """Return what kubectl prints as JSON."""
    document: dict[str, Any] = json.loads(lab("kubectl", *arguments, "-o", "json"))
    return document


@pytest.fixture(scope="module", autouse=True)
def lab_up() -> None:
    lab("up")


@pytest.fixture
def namespace() -> Iterator[str]:
    """A fresh namespace in which pods can be made."""
    name = f"lab-{uuid.uuid4().hex[:8]}"
    lab("kubectl", "create", "namespace", name)
    for _ in range(300):
        wanted = ["get", "-n", name, "serviceaccount/default", "configmap/kube-root-ca.crt"]
        if subprocess.run([KUBE_LAB, "kubectl", *wanted], capture_output=True).returncode == 0:
            break
    else:
        pytest.fail("no default service account")
    yield name
    lab("kubectl", "delete", "namespace", name, "--wait=false")


def pod(name: str, **spec: Any) -> str:
    """Return a manifest of a pod that no node will take."""
    main = {"name": "main", "image": "busybox"}
    selector = {"lab": "nowhere"}
    content = {"containers": [main], "nodeSelector": selector, **spec}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": content})


def test_up_is_idempotent() -> None:
    before = json.loads(lab("status", "--output", "json"))
    assert "was up" in lab("up")
    after = json.loads(lab("status", "--output", "json"))
    assert before["up"]
    assert all(daemon["pid"] and daemon["answers"] for daemon in before["daemons"])
    assert after["daemons"] == before["daemons"]


def test_namespaces_and_provider() -> None:
    for namespace in ("default", "physics", "ai"):
        assert found("get", "-n", namespace, "serviceaccount/default")["metadata"]["namespace"] == namespace
    provider = lab("kubeconfig", "--as", "provider").strip()
    assert Path(provider).stat().st_mode & 0o077 == 0
    may = ["--kubeconfig", provider, "auth", "can-i"]
    assert lab("kubectl", *may, "patch", "pods/status", "-n", "physics").strip() == "yes"
    assert (
        "no"
        in subprocess.run(
            [KUBE_LAB, "kubectl", *may, "create", "pods", "-n", "physics"], capture_output=True, text=True
        ).stdout.split()
    )


@pytest.mark.parametrize(("option", "version"), [([], r"v1\.(\d+)\."), (["--old"], r"v1\.(20)\.")])
def test_both_kubectl_answer(option: list[str], version: str) -> None:
    answer = json.loads(lab("kubectl", *option, "version", "-o", "json"))
    assert answer["serverVersion"]["gitVersion"] == "v1.20.2"
    minor = re.match(version, answer["clientVersion"]["gitVersion"])
    assert minor
    assert int(minor[1]) == 20 if option else int(minor[1]) >= 31
    names = lab("kubectl", *option, "get", "ns", "-o", "name").split()
    assert {"namespace/default", "namespace/physics", "namespace/ai"} <= set(names)


def test_arguments_reach_kubectl_unchanged() -> None:
    lab("kubectl", "-n", "physics", "get", "serviceaccount", "default", "-o", "name")
    assert lab("kubectl", "--old", "get", "ns", "ai", "-o", "name") == "namespace/ai\n"
    assert "NotFound" in lab("kubectl", "get", "ns", "no-such", code=1)


def test_sidecar_with_probes_and_hooks_is_stored(namespace: str) -> None:
    sidecar = {
        "name": "proxy",
        "image": "busybox",
        "restartPolicy": "Always",
        "startupProbe": SIDECAR_PROBE,
        "readinessProbe": SIDECAR_PROBE,
        "livenessProbe": SIDECAR_PROBE,
        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
    }
    lab("kubectl", "apply", "-n", namespace, "-f", "-", text=pod("with-sidecar", initContainers=[sidecar]))
    stored = found("get", "pod", "-n", namespace, "with-sidecar")["spec"]["initContainers"][0]
    assert stored["restartPolicy"] == "Always"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert SIDECAR_PROBE.items() <= stored[probe].items()
        assert stored[probe]["failureThreshold"] == 3
    assert stored["lifecycle"] == sidecar["lifecycle"]
    # The controllers read it through the binary form.
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {
            "template": {
                "spec": {
                    **json.loads(pod("", initContainers=[sidecar]))["spec"],
                    "restartPolicy": "Never",
                }
            }
        },
    }
    lab("kubectl", "apply", "-n", namespace, "-f", "-", text=json.dumps(job))
    for _ in range(300):
        pods = found("get", "pods", "-n", namespace, "-l", "job-name=job")["items"]
        if pods:
            break
    assert [c.get("restartPolicy") for c in pods[0]["spec"]["initContainers"]] == ["Always"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"initContainers": [{"name": "i", "image": "busybox", "livenessProbe": SIDECAR_PROBE}]},
            "initContainers[0].livenessProbe: Invalid value",
        ),
        (
            {
                "initContainers": [
                    {
                        "name": "i",
                        "image": "busybox",
                        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
                    }
                ]
            },
            "initContainers[0].lifecycle: Invalid value",
        ),
        (
            {"initContainers": [{"name": "i", "image": "busybox", "restartPolicy": "Never"}]},
            'initContainers[0].restartPolicy: Unsupported value: "Never"',
        ),
        (
            {"containers": [{"name": "m", "image": "busybox", "restartPolicy": "Always"}]},
            "containers[0].restartPolicy: Forbidden",
        ),
    ],
)
def test_what_is_no_sidecar_is_refused(namespace: str, spec: dict[str, Any], words: str) -> None:
    refused = lab("kubectl", "apply", "-n", namespace, "-f", "-", text=pod("refused", **spec), code=1)
    assert words in refused


def test_token_volume_is_added(namespace: str) -> None:
    lab("kubectl", "apply", "-n", namespace, "-f", "-", text=pod("plain"))
    spec = found("get", "pod", "-n", namespace, "plain")["spec"]
    volume = next(v for v in spec["volumes"] if v["name"].startswith("kube-api-access-"))
    sources = {key for source in volume["projected"]["sources"] for key in source}
    assert sources == {"serviceAccountToken", "configMap", "downwardAPI"}
    mounts = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
    assert mounts[volume["name"]] == "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture
def node() -> Iterator[str]:
    """A name for a node that is gone afterwards."""
    name = f"lab-{uuid.uuid4().hex[:8]}"
    yield name
    lab("kubectl", "delete", "node", name, "--ignore-not-found")
    lab("kubectl", "delete", "lease", "-n", "kube-node-lease", name, "--ignore-not-found")


def test_node_may_keep_itself_and_nothing_else(node: str) -> None:
    config = lab("kubeconfig", "--as", f"node:{node}").strip()

    def create(content: dict[str, Any], code: int = 0) -> str:
        create = ["kubectl", "--kubeconfig", config, "create", "-f", "-"]
        return lab(*create, text=json.dumps(content), code=code)

    def lease(name: str, namespace: str = "kube-node-lease") -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}

    def of(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}

    create(of(node))
    create(lease(node))
    assert "orbidden" in create(of(f"{node}-other"), code=1)
    assert "orbidden" in create(lease(f"{node}-other"), code=1)
    assert "orbidden" in create(lease(node, "default"), code=1)
    as_node = ["kubectl", "--kubeconfig", config]
    assert "orbidden" in lab(*as_node, "get", "secrets", "-n", "default", code=1)
    assert "orbidden" in lab(*as_node, "label", "node", node, "node-restriction.kubernetes.io/a=b", code=1)
    lab(*as_node, "label", "node", node, "kubernetes.io/hostname=here")
    assert found("get", "node", node)["metadata"]["labels"]["kubernetes.io/hostname"] == "here"


def test_kubelet_certificate(tmp_path: Path) -> None:
    lab("kubelet-cert", "some-node", str(tmp_path))
    assert (tmp_path / "tls.key").stat().st_mode & 0o077 == 0
    verify = ["openssl", "verify", "-purpose", "sslserver", "-verify_ip", "127.0.0.1"]
    verify += ["-CAfile", str(tmp_path / "ca.crt"), str(tmp_path / "tls.crt")]
    subprocess.run(verify, check=True, capture_output=True)
    verify[verify.index("127.0.0.1")] = "127.0.0.2"
    assert subprocess.run(verify, capture_output=True).returncode != 0


def test_node_gets_a_serving_certificate(node: str, tmp_path: Path) -> None:
    key, request = tmp_path / "key", tmp_path / "request"
    command = [
        "openssl",
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-noenc",
        "-keyout",
        str(key),
        "-out",
        str(request),
    ]
    command += ["-subj", f"/O=system:nodes/CN=system:node:{node}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    spec = {
        "signerName": "kubernetes.io/kubelet-serving",
        "request": base64.b64encode(request.read_bytes()).decode(),
        "usages": ["digital signature", "key encipherment", "server auth"],
    }
    metadata = {"name": node}
    asked = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    config = lab("kubeconfig", "--as", f"node:{node}").strip()
    content = json.dumps({**asked, "metadata": metadata, "spec": spec})
    try:
        lab("kubectl", "--kubeconfig", config, "create", "-f", "-", text=content)
        lab("kubectl", "certificate", "approve", node)
        for _ in range(300):
            issued = found("get", "csr", node)["status"].get("certificate")
            if issued:
                break
    finally:
        lab("kubectl", "delete", "csr", node, "--ignore-not-found")
    (tmp_path / "crt").write_bytes(base64.b64decode(issued))
    authority = settings()["KUBE_LAB_CA"]
    verify = ["openssl", "verify", "-purpose", "sslserver", "-CAfile", authority, str(tmp_path / "crt")]
    subprocess.run(verify, check=True, capture_output=True)


class Kubelet(http.server.BaseHTTPRequestHandler):
    """Answers every request with its path and the name in the client's certificate."""

    def do_GET(self) -> None:
        assert isinstance(self.connection, ssl.SSLSocket)
        peer: Any = self.connection.getpeercert()
        names = [value for part in peer["subject"] for key, value in part if key == "commonName"]
        body = f"{self.path} {names[0]}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def test_api_server_reaches_a_kubelet(namespace: str, node: str, tmp_path: Path) -> None:
    lab("kubelet-cert", node, str(tmp_path))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kubelet) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            status = {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": server.server_port}},
            }
            content = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": status}
            lab("kubectl", "create", "-f", "-", text=json.dumps(content))
            placed = pod("placed", nodeName=node, nodeSelector={})
            lab("kubectl", "create", "-n", namespace, "-f", "-", text=placed)
            for option in ([], ["--old"]):
                said = lab("kubectl", *option, "logs", "-n", namespace, "placed", "--tail=5")
                assert (
                    said
                    == f"/containerLogs/{namespace}/placed/main?tailLines=5 kube-apiserver-kubelet-client\n"
                )
            lab("kubectl", "delete", "pod", "-n", namespace, "placed", "--grace-period=0", "--force")
        finally:
            server.shutdown()
            thread.join()


def test_users_have_no_rights_of_their_own() -> None:
    user = lab("kubeconfig", "--as", "user:somebody:guests").strip()
    assert '"somebody"' in lab("kubectl", "--kubeconfig", user, "get", "pods", code=1)
    assert "--as root" in lab("kubeconfig", "--as", "root", code=1)


def test_env() -> None:
    values = settings()
    assert values["KUBECONFIG"] == lab("kubeconfig").strip()
    for key in ("KUBECONFIG", "KUBE_LAB_CA", "SLURMREST_NODE__KUBECONFIG", "KUBE_LAB_KUBECTL"):
        assert Path(values[key]).is_file(), key
    command = [
        values["KUBE_LAB_KUBECTL"],
        "--kubeconfig",
        values["KUBECONFIG"],
        "get",
        "--raw",
        "/readyz",
    ]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "ok"


@pytest.mark.disruptive
def test_daemon_that_is_gone_comes_back() -> None:
    def running() -> dict[str, int | None]:
        status = subprocess.run([KUBE_LAB, "status", "--output", "json"], capture_output=True, text=True)
        return {d["name"]: d["pid"] for d in json.loads(status.stdout)["daemons"]}

    before = running()
    lab("stop", "kube-scheduler")
    assert running() == {**before, "kube-scheduler": None}
    lab("status", code=3)
    lab("start", "kube-scheduler")
    after = running()
    assert after["kube-scheduler"] not in (None, before["kube-scheduler"])
    # A process of the same number that is not the one noted is none of ours.
    directory = json.loads(lab("status", "--output", "json"))["directory"]
    note = Path(directory) / "run" / "kube-scheduler.json"
    noted = json.loads(note.read_text())
    try:
        note.write_text(json.dumps({**noted, "start": noted["start"] + 1}))
        assert running()["kube-scheduler"] is None
    finally:
        note.write_text(json.dumps(noted))
    assert running() == after
    assert "no daemon 'kubelet'" in lab("stop", "kubelet", code=1)
