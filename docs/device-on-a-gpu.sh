#!/bin/bash
# The device agent on a machine with an NVIDIA GPU. See device-on-a-gpu.md.
set -u
orlop=$(realpath "${1:?say where the orlop program is}")
folder=$(mktemp -d)
export ORLOP_DEVICE_SERVER=unix://$folder/device.sock RUST_BACKTRACE=0
serve() {
    "$orlop" device serve --bind-address "$ORLOP_DEVICE_SERVER" --storage-endpoint "$1" --log warn \
        --metrics-bind-address 127.0.0.1:19090 --health-probe-bind-address 127.0.0.1:15051 >"$folder/serve.out" &
    server=$!
    until [ -S "$folder/device.sock" ]; do sleep 0.05; done
}
resident() { awk -v who="$1" '/^VmRSS/ {print who " resident: " $2 / 1024 " MiB"}' "/proc/$2/status"; }
metric() { exec 3<>/dev/tcp/127.0.0.1/19090; printf 'GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&3; grep "$1" <&3; exec 3>&-; }

echo "== the machine"; nvidia-smi -L 2>&1; uname -r
echo "== serve, with storage in a file"; serve "sqlite://$folder/state.db"; cat "$folder/serve.out"
echo "== agent"; "$orlop" device agent --period 1s 2>"$folder/agent.err" & agent=$!
sleep 3; cat "$folder/agent.err"
echo "== get"; "$orlop" device get
resident server $server; resident agent $agent
echo "== metrics"; metric 'device_apiserver\|handled_total.*OK.* [1-9]'
echo "== kill -9, and start again on the same file"; kill -9 $server; wait $server 2>/dev/null; rm -f "$folder/device.sock"
serve "sqlite://$folder/state.db"; "$orlop" device get
echo "== in memory instead: the agent registers again"; kill $server; wait $server; serve memory
sleep 6; "$orlop" device get; "$orlop" device watch & watch=$!; sleep 1; kill $watch
echo "== the agent's log"; cat "$folder/agent.err"
kill $agent $server; wait $agent $server
echo "== without the library"; mkdir "$folder/empty"; LD_LIBRARY_PATH=$folder/empty "$orlop" device agent 2>&1 | head -3 &
without=$!; sleep 2; kill $without 2>/dev/null
rm -rf "$folder"
