"""The virtual kubelet: registers the node, watches its pods, mirrors job state into pod status.

It comes with the Kubernetes lab; until then `slurmrest-adapter run` is the way in.
"""
