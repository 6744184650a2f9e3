"""What the lab is made of, as data: packages, ports, names."""

from __future__ import annotations

# Raise when the way the control plane is built changes, so that old caches are not taken for new ones.
RECIPE = 1

# bookworm is the last suite whose source package is the whole of Kubernetes, and has the Go that compiles it.
SUITE = "bookworm"
SOURCE = "kubernetes"
PACKAGES = ("golang-1.19-go", "golang-1.19-src", "golang-github-modern-go-reflect2-dev", "etcd-server")
GOROOT = "usr/lib/go-1.19"
BUILT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
PROGRAMS = ("etcd", *BUILT)

# kubectl: suite, package. The first is the same release as the server.
KUBECTL_OLD = ("bookworm", "kubernetes-client")
KUBECTL_NEW = ("sid", "kubectl")

# Ports, as offsets from the lab's base.
PORT_BASE = 16400
PORTS = {
    "etcd": 41,
    "etcd-peer": 42,
    "kube-apiserver": 43,
    "kube-controller-manager": 44,
    "kube-scheduler": 45,
}
KUBELET_PORT = 50  # nothing of the lab listens there: it is for the provider under test

NODE = "slurm"
NAMESPACES = ("physics", "ai")  # besides default; identity.map of the Slurm lab knows all three
PROVIDER = ("kube-system", "vk-provider")  # namespace and name of its service account
SERVICE_RANGE, SERVICE_IP = "10.96.0.0/16", "10.96.0.1"
ISSUER = "https://kubernetes.default.svc.cluster.local"
FEATURE_GATES = "BoundServiceAccountTokenVolume=true,EphemeralContainers=true"
