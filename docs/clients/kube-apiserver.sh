#!/bin/bash
# kube-apiserver and kube-controller-manager (from KUBE_BIN) on Debian's etcd: prints one line of JSON when ready,
# as `orlop serve --ephemeral` does, and ends with its parent. See docs/clients.md.
dir=$(mktemp -d /tmp/peer.XXXXXX); cd $dir
BIN=${KUBE_BIN:-/tmp/kube}; ETCD=$HOME/.cache/orlop-tools/etcd-trixie/root/usr/bin/etcd
port() { python3 -c 'import socket;s=socket.socket();s.bind(("127.0.0.1",0));print(s.getsockname()[1])'; }
e=$(port); ep=$(port); a=$(port)
$ETCD --data-dir $dir/etcd --unsafe-no-fsync --listen-client-urls http://127.0.0.1:$e --advertise-client-urls http://127.0.0.1:$e --listen-peer-urls http://127.0.0.1:$ep --log-level error >etcd.log 2>&1 & E=$!
openssl genrsa -out sa.key 2048 2>/dev/null
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=ca 2>/dev/null
echo 't0ken,kubernetes-admin,1,system:masters' > tokens.csv
$BIN/kube-apiserver --etcd-servers=http://127.0.0.1:$e --secure-port=$a --bind-address=127.0.0.1 --cert-dir=$dir/certs --token-auth-file=tokens.csv --client-ca-file=ca.crt --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=sa.key --service-account-signing-key-file=sa.key --authorization-mode=RBAC --service-cluster-ip-range=10.0.0.0/16 --disable-admission-plugins=ServiceAccount --max-requests-inflight=0 --max-mutating-requests-inflight=0 --enable-priority-and-fairness=false $PEER_FLAGS >apiserver.log 2>&1 & A=$!
cat > kubeconfig <<K
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:$a", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: t0ken}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
K
trap "kill $A $E $C; rm -rf $dir; exit" TERM INT EXIT
for i in $(seq 400); do curl -sk -H 'Authorization: Bearer t0ken' https://127.0.0.1:$a/readyz 2>/dev/null | grep -q '^ok$' && break; sleep 0.05; done
$BIN/kube-controller-manager --kubeconfig=kubeconfig --leader-elect=false --controllers=${PEER_CONTROLLERS:-garbagecollector,namespace,serviceaccount,root-ca-certificate-publisher-controller} --root-ca-file=ca.crt --service-account-private-key-file=sa.key --secure-port=0 --use-service-account-credentials=false > kcm.log 2>&1 & C=$!
for i in $(seq 200); do curl -sk -H 'Authorization: Bearer t0ken' https://127.0.0.1:$a/api/v1/namespaces/default/serviceaccounts/default 2>/dev/null | grep -q uid && break; sleep 0.05; done
echo "{\"server\": \"https://127.0.0.1:$a\", \"kubeconfig\": \"$dir/kubeconfig\"}"
exec 1>&-
P=$PPID
while kill -0 $P 2>/dev/null && [ "$(ps -o ppid= -p $$ | tr -d ' ')" = "$P" ]; do sleep 0.5; done
