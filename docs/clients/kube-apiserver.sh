#!/bin/bash
# kube-apiserver and kube-controller-manager (from KUBE_BIN) on Debian's etcd: prints one line of JSON when ready,
# as `orlop serve --ephemeral` does, and ends with its parent, however that ends. See docs/clients.md.
dir=$(mktemp -d /tmp/peer.XXXXXX); cd $dir
BIN=${KUBE_BIN:-/tmp/kube}; ETCD=$HOME/.cache/orlop-tools/etcd-trixie/root/usr/bin/etcd
P=$PPID
trap 'kill -9 $A $E $C 2>/dev/null; rm -rf $dir; exit' TERM INT HUP PIPE EXIT
# Should this script be killed without a chance to clean up, the kernel ends its servers.
tied() { exec setpriv --pdeathsig KILL "$@"; }
orphaned() { [ "$(ps -o ppid= -p $$ | tr -d ' ')" != "$P" ]; }
port() { python3 -c 'import socket;s=socket.socket();s.bind(("127.0.0.1",0));print(s.getsockname()[1])'; }
e=$(port); ep=$(port); a=$(port)
tied $ETCD --data-dir $dir/etcd --unsafe-no-fsync --listen-client-urls http://127.0.0.1:$e --advertise-client-urls http://127.0.0.1:$e --listen-peer-urls http://127.0.0.1:$ep --log-level error >etcd.log 2>&1 & E=$!
openssl genrsa -out sa.key 2048 2>/dev/null
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=ca 2>/dev/null
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout admin.key -out admin.csr -subj /O=system:masters/CN=kubernetes-admin 2>/dev/null
printf 'extendedKeyUsage=clientAuth\nsubjectKeyIdentifier=hash\nbasicConstraints=CA:FALSE\n' > admin.ext
openssl x509 -req -in admin.csr -CA ca.crt -CAkey ca.key -days 2 -extfile admin.ext -out admin.crt 2>/dev/null
echo 't0ken,kubernetes-admin,1,system:masters' > tokens.csv
tied $BIN/kube-apiserver --etcd-servers=http://127.0.0.1:$e --secure-port=$a --bind-address=127.0.0.1 --cert-dir=$dir/certs --token-auth-file=tokens.csv --client-ca-file=ca.crt --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=sa.key --service-account-signing-key-file=sa.key --authorization-mode=RBAC --service-cluster-ip-range=10.0.0.0/16 --disable-admission-plugins=ServiceAccount --max-requests-inflight=0 --max-mutating-requests-inflight=0 --enable-priority-and-fairness=false $PEER_FLAGS >apiserver.log 2>&1 & A=$!
for i in $(seq 400); do orphaned && exit; curl -sk -H 'Authorization: Bearer t0ken' https://127.0.0.1:$a/readyz 2>/dev/null | grep -q '^ok$' && break; sleep 0.05; done
cat > kubeconfig <<K
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters:
- name: c
  cluster:
    server: https://127.0.0.1:$a
    certificate-authority-data: $(base64 -w0 certs/apiserver.crt)
users:
- name: u
  user:
    client-certificate-data: $(base64 -w0 admin.crt)
    client-key-data: $(base64 -w0 admin.key)
K
tied $BIN/kube-controller-manager --kubeconfig=kubeconfig --leader-elect=false --controllers=${PEER_CONTROLLERS:-garbagecollector,namespace,serviceaccount,root-ca-certificate-publisher-controller} --root-ca-file=ca.crt --service-account-private-key-file=sa.key --secure-port=0 --use-service-account-credentials=false > kcm.log 2>&1 & C=$!
for i in $(seq 200); do orphaned && exit; curl -sk -H 'Authorization: Bearer t0ken' https://127.0.0.1:$a/api/v1/namespaces/default/serviceaccounts/default 2>/dev/null | grep -q uid && break; sleep 0.05; done
echo "{\"server\": \"https://127.0.0.1:$a\", \"kubeconfig\": \"$dir/kubeconfig\", \"processes\": [$A, $E]}"
exec 1>&-
until orphaned; do sleep 0.5; done
