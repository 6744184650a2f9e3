"""The virtual kubelet: a Kubernetes node whose pods are jobs behind a sidecar.

The problem: Kubernetes wants a kubelet's behaviour (a node with heartbeats, pod status by exact
rules, logs over TLS), the sidecar speaks interLink's five calls and knows nothing of Kubernetes.

The trick: everything the provider knows can be asked for again. The API server has the pods, the
sidecar has the jobs and takes the same pod twice without running it twice; so the provider keeps
no file of its own and may be killed at any instant.

    watch ──▶ PodCache ──▶ WorkQueue ──▶ PodController ──▶ sidecar /create, /delete
                              ▲               │
              poll of /status ┘               └──▶ pod status, events (API server)

It is no job manager: it never decides what a job's state means, only how a kubelet would say it.
"""
