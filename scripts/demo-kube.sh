# The second part of scripts/demo, sourced by `scripts/demo --kube`: a real Kubernetes in front.

say "1. A Slurm and a Kubernetes control plane of our own (the first time takes some minutes)"
scripts/slurm-lab up
scripts/kube-lab up
ensure_venv
eval "$(scripts/slurm-lab env --export)"
eval "$(scripts/kube-lab env | sed 's/^/export /')"
work=$(mktemp -d)
SLURMREST_STATE_DIR=$work/state
SLURMREST_LISTEN__PLUGIN=unix://$work/plugin.sock
export SLURMREST_STATE_DIR SLURMREST_LISTEN__PLUGIN
kubectl() { "$KUBE_LAB_KUBECTL" --kubeconfig "$KUBECONFIG" "$@"; }
started=()
# The daemons end with the demo, by their ids; so does what it made in the cluster.
finish() {
    kubectl delete pod/two-gpus configmap/settings -n physics --ignore-not-found --timeout=30s >/dev/null 2>&1 || true
    [ ${#started[@]} -eq 0 ] || kill "${started[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    kubectl delete node "$KUBE_LAB_NODE" --ignore-not-found >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT

say "2. Two daemons: the sidecar (slurmrest-adapter serve) and the virtual kubelet (vk-provider)"
slurmrest-adapter serve 2>"$work/serve.log" &
started+=($!)
vk-provider --poll 1 --cert-dir "$KUBE_LAB_KUBELET_CERTS" 2>"$work/vk-provider.log" &
started+=($!)
for _ in $(seq 100); do
    kubectl wait --for=condition=Ready "node/$KUBE_LAB_NODE" --timeout=1s >/dev/null 2>&1 && break
    sleep 0.3
done
show kubectl get node "$KUBE_LAB_NODE" ||
    die "the node did not become ready: $(tail -n 3 "$work/serve.log" "$work/vk-provider.log")"
show kubectl get node "$KUBE_LAB_NODE" -o "jsonpath={.status.capacity}"
echo

say "3. kubectl apply -f examples/kubectl.yaml, and watch"
show kubectl apply -f examples/kubectl.yaml
timeout 60 "$KUBE_LAB_KUBECTL" --kubeconfig "$KUBECONFIG" get pod two-gpus -n physics -w &
watching=$!
for _ in $(seq 150); do
    [ "$(kubectl get pod two-gpus -n physics -o 'jsonpath={.status.phase}')" = Pending ] || break
    sleep 0.2
done
say "   the same pod, as every Slurm user sees it"
show scripts/slurm-lab exec squeue -o "%.7i %.28j %.8u %.10a %.10T %.6M %.6N %.16b"

say "4. kubectl logs -f"
show kubectl logs -f two-gpus -c left -n physics
show kubectl logs two-gpus -c right -n physics
code=0
for _ in $(seq 100); do
    phase=$(kubectl get pod two-gpus -n physics -o 'jsonpath={.status.phase}')
    [ "$phase" = Running ] || [ "$phase" = Pending ] || break
    sleep 0.2
done
kill "$watching" 2>/dev/null || true
[ "$phase" = Succeeded ] || code=1

say "5. kubectl describe"
kubectl describe pod two-gpus -n physics | sed -n '/^Status:/,/^IP:/p;/^Containers:/,/Ready:/p;/^Events:/,$p'

job=$(kubectl get pod two-gpus -n physics -o 'jsonpath={.metadata.annotations.JobID}')
say "6. kubectl delete; and Slurm's account of it"
show kubectl delete pod two-gpus -n physics
show scripts/slurm-lab exec sacct -X -j "$job" -o "JobID,JobName%28,User,Account,State%12,Elapsed,AllocTRES%45"
[ "$code" = 0 ] || die "the pod ended as $phase: $(tail -n 5 "$work/serve.log" "$work/vk-provider.log")"
say "done. Both labs stay up: scripts/demo --down stops them."
