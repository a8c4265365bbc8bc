#!/usr/bin/env bash
# User APIs on AWS: a TubiLambdaService with a custom domain, on a simulator of AWS, with kubectl and curl.
#
#   examples/tubi/run.sh             builds, runs everything, shows it, tidies up
#   examples/tubi/run.sh --keep      leaves it running until Ctrl-C
#
# BIN names a folder with orlop and orlop-aws, if they are built already. KUBECTL names kubectl, PYTHON an interpreter with
# the simulator (pip install ministack==1.5.33). The simulator plays all of AWS, including the way of a request from a host
# name through API Gateway to the function.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
keep=${1:-}
python=${PYTHON:-python3}
# Its path: a script of this name is found first further below.
kubectl=$(command -v "${KUBECTL:-kubectl}") || { echo "failed: there is no ${KUBECTL:-kubectl}" >&2; exit 1; }

if [[ -z ${BIN:-} ]]; then
  cargo build --manifest-path "$root/Cargo.toml" -p orlop -p orlop-aws
  BIN=${CARGO_TARGET_DIR:-$root/target}/debug
fi

work=$(mktemp -d /var/tmp/orlop-tubi.XXXXXX)
pids=()
finish() {
  status=$?
  trap - EXIT
  if ((status != 0)); then
    for log in "$work"/*.log; do echo "--- $log" && tail -n 20 "$log"; done || true
  fi 2> /dev/null
  for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null && wait "$pid" 2> /dev/null; done
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
fail() { echo "failed: $*" >&2; exit 1; }
# Waits for a command to succeed, for at most two minutes.
wait_until() {
  local what=$1; shift
  for _ in $(seq "${TRIES:-600}"); do
    if "$@" > /dev/null 2>&1; then return; fi
    sleep 0.2
  done
  kube get functions,apis,apigatewaydomains,lambdapermissions -o wide >&2 || true
  kube get tubilambdaservices -o jsonpath='{.items[*].status}' >&2 || true
  fail "$what"
}
kube() { "$kubectl" --kubeconfig "$work/kubeconfig" "$@"; }
value() { kube get "$1" -o "jsonpath=$2"; }
missing() { [[ -z $(kube get "$1" --ignore-not-found -o name) ]]; }
has() { [[ $(value "$1" "$2") == "$3" ]]; }
# Calls a service of the simulator, which checks no signature.
aws() {
  local service=$1 method=$2 path=$3; shift 3
  curl -sf -X "$method" "$simulator$path" "$@" -H \
    "Authorization: AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/$service/aws4_request, SignedHeaders=host, Signature=0"
}
free_port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

say "ministack, orlop serve --compose, orlop-aws run"
port=$(free_port)
simulator=http://127.0.0.1:$port
BIND_HOST=127.0.0.1 GATEWAY_PORT=$port "$python" -c 'from ministack.app import main; main()' > "$work/ministack.log" 2>&1 &
pids+=($!)
"$BIN/orlop" serve --compose --ephemeral --kubeconfig "$work/kubeconfig" --listen 127.0.0.1:0 > "$work/orlop.log" 2>&1 &
pids+=($!)
wait_until "the API server is not ready" kube get --raw /readyz
wait_until "the simulator is not ready" curl -sf "$simulator/_ministack/health"
metrics=127.0.0.1:$(free_port)
KUBECONFIG=$work/kubeconfig AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test "$BIN/orlop-aws" run --aws-region us-east-1 \
  --aws-endpoint-url "$simulator" --allow-unsafe-aws-endpoint-urls --no-leader-election --metrics-addr "$metrics" \
  --call-rate-scale 0 --wait-scale 0.1 > "$work/orlop-aws.log" 2>&1 &
pids+=($!)
wait_until "orlop-aws is not ready" curl -sf "http://$metrics/readyz"

say "what the platform team gives: a zone, the code, the kinds"
kube apply -f - << YAML
apiVersion: route53.services.k8s.aws/v1alpha1
kind: HostedZone
metadata: {name: example}
spec: {name: example.com.}
---
apiVersion: s3.services.k8s.aws/v1alpha1
kind: Bucket
metadata: {name: tubi-code}
spec: {name: tubi-code}
YAML
ready='{.status.conditions[?(@.type=="Ready")].status}'
wait_until "the zone does not become Ready" has hostedzone/example "$ready" True
wait_until "the bucket does not become Ready" has bucket/tubi-code "$ready" True
"$python" -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "w").write(sys.argv[2], "main.py")' \
  "$work/hello.zip" "$here/function/main.py"
aws s3 PUT /tubi-code/hello.zip --data-binary "@$work/hello.zip" > /dev/null
kube apply -f "$here/lambda-service.yaml" -f "$here/service.yaml" -f "$here/postgres.yaml"
for kind in tubi-lambda-service tubi-service tubi-postgres; do
  wait_until "$kind does not become Active" has "rgd/$kind" '{.status.state}' Active
done

say "kubectl apply -f examples/tubi/hello.yaml"
kube apply -f "$here/hello.yaml"
wait_until "the service does not become ACTIVE" has tubilambdaservice/hello '{.status.state}' ACTIVE
kube get tubilambdaservices,functions,apis,apigatewaydomains,lambdapermissions
kube get tubilambdaservice hello -o jsonpath='{.status}' | "$python" -m json.tool
[[ $(value tubilambdaservice/hello '{.status.dnsRecordName}') == hello.example.com. ]] || fail "dnsRecordName"
[[ -n $(value tubilambdaservice/hello '{.status.httpEndpoint}') ]] || fail "httpEndpoint"

say "curl -H 'Host: hello.example.com': through the custom domain to the function"
answer=$(curl -sf -H 'Host: hello.example.com' "$simulator/some/path")
echo "$answer"
for part in '"greeting": "ahoy"' '"url": "http://a/?b=c"' '"table": "hello-visits"' '"path": "/some/path"'; do
  [[ $answer == *"$part"* ]] || fail "the function's answer lacks $part"
done

say "kubectl apply -f examples/tubi/shop.yaml: the kinds of Kubernetes itself"
kube apply -f "$here/shop.yaml"
wait_until "there is no Deployment" kube get deployment shop
wait_until "there is no StatefulSet" kube get statefulset shop-db
wait_until "there is no Job" kube get job shop-db-credentials
# No node runs here; the script plays one.
kube patch deployment shop --subresource=status --type=merge \
  -p '{"status":{"replicas":2,"readyReplicas":2,"availableReplicas":2,"conditions":[{"type":"Available","status":"True"}]}}'
kube patch statefulset shop-db --subresource=status --type=merge -p '{"status":{"replicas":1,"readyReplicas":1}}'
mkdir "$work/bin"
printf '#!/bin/sh\nexec "%s" --kubeconfig "%s" "$@"\n' "$kubectl" "$work/kubeconfig" > "$work/bin/kubectl"
chmod +x "$work/bin/kubectl"
job=$(value job/shop-db-credentials '{range .spec.template.spec.containers[0].env[*]}{.name}={.value}{"\n"}{end}')
mapfile -t variables <<< "$job"
env PATH="$work/bin:$PATH" "${variables[@]}" sh -euc "$(value job/shop-db-credentials '{.spec.template.spec.containers[0].command[2]}')"
kube patch job shop-db-credentials --subresource=status --type=merge -p '{"status":{"succeeded":1}}'
wait_until "the TubiService does not become ACTIVE" has tubiservice/shop '{.status.state}' ACTIVE
wait_until "the TubiPostgres does not become ACTIVE" has tubipostgres/shop-db '{.status.state}' ACTIVE
kube get tubiservices,tubipostgres,deployments,statefulsets,services,ingresses,hpa,pdb,cronjobs,buckets
has tubiservice/shop '{.status.url} {.status.readyReplicas}' 'http://shop.example.com/ 2' || fail "status of the TubiService"
has tubipostgres/shop-db '{.status.host}:{.status.port} {.status.phase}' 'shop-db.default:5432 Ready' \
  || fail "status of the TubiPostgres"

password=$(value secret/shop-db '{.data.password}' | base64 -d)
((${#password} >= 30)) || fail "no password"
[[ $(kube get tubipostgres,jobs,statefulsets,configmaps,events -o yaml) != *"$password"* ]] || fail "the password is readable"
role='{.metadata.annotations.eks\.amazonaws\.com/role-arn}'
for account in shop shop-db-backup; do
  has "serviceaccount/$account" "$role" "arn:aws:iam::000000000000:role/default-$account" || fail "role of $account"
  wait_until "the role of $account does not become Ready" has "role.iam.services.k8s.aws/$account" "$ready" True
done

if [[ $keep == --keep ]]; then
  say "kubectl --kubeconfig $work/kubeconfig get tubilambdaservices    (Ctrl-C ends it)"
  wait "${pids[0]}"
fi

say "kubectl delete: nothing is left"
kube delete -f "$here/hello.yaml" -f "$here/shop.yaml" --timeout=120s
left() { aws "$@" || true; }
[[ $(left apigateway GET /v2/domainnames) == *'"items": []'* ]] || fail "a domain name is left"
[[ $(left apigateway GET /v2/apis) == *'"items": []'* ]] || fail "an API is left"
[[ $(left lambda GET /2015-03-31/functions) == *'"Functions": []'* ]] || fail "a function is left"
[[ $(left iam POST / -d 'Action=ListRoles&Version=2010-05-08') != *'<RoleName>'* ]] || fail "a role is left"
wait_until "the Secret is left" missing secret/shop-db
[[ $(left acm POST / -H 'X-Amz-Target: CertificateManager.ListCertificates' -d '{}') == *'"CertificateSummaryList": []'* ]] \
  || fail "a certificate is left"
[[ $(left s3 GET /) != *shop-db-backup* ]] || fail "a bucket is left"
zone=$(value hostedzone/example '{.status.id}')
[[ $(left route53 GET "/2013-04-01$zone/rrset") != *CNAME* ]] || fail "a record is left"
curl -s -o /dev/null -w '%{http_code}\n' -H 'Host: hello.example.com' "$simulator/some/path"
say "done"
