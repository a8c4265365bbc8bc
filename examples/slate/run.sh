#!/usr/bin/env bash
# The tenant `acme` on a control plane and a node of Orlop's: a Slate server and two collections, with kubectl.
#
#   examples/slate/run.sh             builds, runs everything, shows it, tidies up
#   examples/slate/run.sh --keep      leaves it running until Ctrl-C
#
# BIN names a folder with orlop, slate-server, slate-operator and slate-cli, if they are built already. KUBECTL names
# kubectl. STORE=rocks tries the durable store, on a volume of the node; it needs a slate-server with the feature `rocks`.
# PYTHON names an interpreter with pymongo; without it, and without pymongo in python3, that step is left out.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
keep=${1:-}
store=${STORE:-memory}

if [[ -z ${BIN:-} ]]; then
  features=()
  [[ $store == rocks ]] && features=(--features slate-server/rocks)
  cargo build --manifest-path "$root/Cargo.toml" -p orlop -p slate-server -p slate-operator -p slate-cli "${features[@]}"
  BIN=${CARGO_TARGET_DIR:-$root/target}/debug
fi

# Pods have a /tmp of their own, so what they run must not be there.
work=$(mktemp -d /var/tmp/orlop-slate.XXXXXX)
chmod 755 "$work"
server_pid= operator_pid=
finish() {
  status=$?
  trap - EXIT
  if ((status != 0)); then
    echo "--- slate-operator" && tail -n 20 "$work/operator.log" || true
    echo "--- orlop" && tail -n 20 "$work/orlop.log" || true
  fi 2> /dev/null
  [[ -n $operator_pid ]] && kill "$operator_pid" 2> /dev/null && wait "$operator_pid" 2> /dev/null
  [[ -n $server_pid ]] && kill "$server_pid" 2> /dev/null && wait "$server_pid" 2> /dev/null
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT INT TERM

# An image of this node is a program. All pods share the machine's network, so the server listens on its pod's address.
mkdir -p "$work/images/slate-server"
cp "$BIN/slate-server" "$work/slate-server"
cat > "$work/images/slate-server/image.yaml" << YAML
entrypoint:
  - /bin/sh
  - -c
  - exec $work/slate-server --addr "\$POD_IP:9600" \${SLATE_MONGO_ADDR:+--mongo-addr "\$POD_IP:27017"}
YAML

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
fail() { echo "failed: $*" >&2; exit 1; }
# Waits for a command to succeed, for at most two minutes.
wait_until() {
  local what=$1; shift
  for _ in $(seq 600); do
    if "$@" > /dev/null 2>&1; then return; fi
    sleep 0.2
  done
  kube get servers,collections,pods,events -n acme >&2 || true
  fail "$what"
}
kube() { "${KUBECTL:-kubectl}" --kubeconfig "$work/kubeconfig" "$@"; }
value() { kube get "$1" -n acme -o "jsonpath=$2"; }
has() { [[ $(value "$1" "$2") == "$3" ]]; }
slate() { "$BIN/slate-cli" --addr "$(value service/main-db '{.spec.clusterIP}'):9600" run "$@"; }
no_process() { ! pgrep -f "^$work/slate-server" > /dev/null; }

say "orlop serve --node"
"$BIN/orlop" serve --node --data-dir "$work/data" --kubeconfig "$work/kubeconfig" --listen 127.0.0.1:0 \
  --images "$work/images" > "$work/orlop.log" 2>&1 &
server_pid=$!
wait_until "the API server is not ready" kube get --raw /readyz
"$BIN/slate-operator" crd | kube apply -f -
"$BIN/slate-operator" run --kubeconfig "$work/kubeconfig" --image slate-server > "$work/operator.log" 2>&1 &
operator_pid=$!

say "kubectl apply -f examples/slate/acme.yaml"
sed "s/store: memory/store: $store/" "$here/acme.yaml" | kube apply -f -
ready='{.status.conditions[?(@.type=="Ready")].status}'
wait_until "the Server does not become Ready" has server/main-db '{.status.phase}' Ready
for collection in accounts prospects; do
  wait_until "collection $collection does not become ready" has "collection/$collection" "$ready" True
done
kube get servers -n acme
kube get collections -n acme
kube get pods -n acme
pods='{.items[*].status.phase} {.items[*].status.containerStatuses[0].ready}'
has pods "$pods" "Running true" || fail "the pod is not Running 1/1"

say "a client writes and reads through the Service's address"
slate insert accounts '{"_id": 1, "status": "active", "score": 42}'
slate find accounts '{"status": "active"}'
[[ $(slate count accounts '{"status": "active"}') == 1 ]] || fail "the document is not found"
[[ $(slate indexes accounts) == *status*score* ]] || fail "the indexes of accounts"
[[ $(slate indexes prospects) == *stage* ]] || fail "the index of prospects"

say "kubectl delete pod: everything comes back"
boot=$(value server/main-db '{.status.boot_id}')
kube delete pod -n acme --all --wait=false
restarted() { [[ -n $(value server/main-db '{.status.boot_id}') && $(value server/main-db '{.status.boot_id}') != "$boot" ]]; }
wait_until "no new start of the server is seen" restarted
wait_until "the Server does not become Ready again" has server/main-db '{.status.phase}' Ready
back() { [[ $(slate indexes accounts) == *status*score* && $(slate indexes prospects) == *stage* ]]; }
wait_until "collections and indexes do not come back" back
count=$(slate count accounts)
kept=$([[ $store == rocks ]] && echo 1 || echo 0)
[[ $count == "$kept" ]] || fail "$count documents after the restart, $kept expected on $store"
kube get collections -n acme -o wide

say "kubectl patch collection accounts: indexes follow the spec"
kube patch collection accounts -n acme --type merge -p '{"spec":{"indexes":["status","tags.[]"]}}'
edited() { [[ $(slate indexes accounts) == *tags* && $(slate indexes accounts) != *score* ]]; }
wait_until "the indexes do not follow" edited

say "kubectl patch server main-db: new resources and MongoDB's protocol roll out"
kube patch server main-db -n acme --type merge \
  -p '{"spec":{"resources":{"limits":{"memory":"3Gi"}},"mongo":{"enabled":true}}}'
wait_until "the new generation is not rolled out" has server/main-db '{.status.ready_generation}' 2
wait_until "collections do not follow the new server" edited
if [[ $store == rocks ]] &&
  kube patch server main-db -n acme --type merge -p '{"spec":{"store":"memory"}}' 2> /dev/null; then
  fail "a server on rocks became one on memory"
fi

if [[ -n ${PYTHON:-} ]] || python3 -c 'import pymongo' 2> /dev/null; then
  say "pymongo writes and reads through the Service's address"
  "${PYTHON:-python3}" - "mongodb://$(value service/main-db '{.spec.clusterIP}'):27017/?directConnection=true" << 'PY'
import sys

import pymongo

accounts = pymongo.MongoClient(sys.argv[1], serverSelectionTimeoutMS=30000)["slate"]["accounts"]
accounts.insert_one({"_id": "by pymongo", "status": "closed", "tags": ["x"]})
found = accounts.find_one({"tags": "x"})
assert found["status"] == "closed", found
indexes = set(accounts.index_information())
assert indexes == {"_id_", "status_1", "tags_1"}, indexes
print(found)
PY
  [[ $(slate count accounts '{"_id": "by pymongo"}') == 1 ]] || fail "port 9600 does not see pymongo's document"
fi

if [[ $keep == --keep ]]; then
  say "kubectl --kubeconfig $work/kubeconfig get servers -n acme    (Ctrl-C ends it)"
  wait "$server_pid"
fi

say "kubectl delete namespace acme: nothing is left"
kube delete namespace acme --timeout=120s
wait_until "a process of the server is left" no_process
[[ -z $(kube get pvc,pv -A -o name 2> /dev/null) ]] || fail "a claim or volume is left"
say "done"
