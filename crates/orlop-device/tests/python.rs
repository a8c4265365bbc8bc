//! gRPC's own Python packages as clients: reflection, health and channelz, and calls made from nothing but
//! what reflection tells.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use support::{Calls, Fixture, Storage, gpu, python};

/// Imports, and a channel to the address in `sys.argv[1]`.
const BEGIN: &str = r#"
import sys, grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
channel = grpc.insecure_channel(sys.argv[1])
database = ProtoReflectionDescriptorDatabase(channel)
pool = descriptor_pool.DescriptorPool(database)
"#;

/// Calls a method of GpuService by name, with messages made from reflection.
const CALLS: &str = r#"
service = pool.FindServiceByName('nvidia.nvsentinel.v1alpha1.GpuService')
def method(name):
    found = service.methods_by_name[name]
    request = message_factory.GetMessageClass(found.input_type)
    response = message_factory.GetMessageClass(found.output_type)
    make = channel.unary_stream if found.server_streaming else channel.unary_unary
    call = make('/%s/%s' % (service.full_name, name), request.SerializeToString, response.FromString)
    return request, call
def code_of(call, request):
    try:
        call(request)
    except grpc.RpcError as error:
        return error.code().name
    return 'OK'
"#;

async fn python(script: String, arguments: Vec<String>) -> String {
    tokio::task::spawn_blocking(move || {
        python::run(&script, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    })
    .await
    .unwrap()
}

fn address(f: &Fixture) -> String {
    format!("unix://{}", f.socket().display())
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_describes_every_method() {
    for storage in [Storage::Memory, Storage::Disk] {
        let f = Fixture::start(storage).await;
        let script = format!(
            r#"{BEGIN}{CALLS}
services = sorted(database.get_services())
assert 'nvidia.nvsentinel.v1alpha1.GpuService' in services, services
assert 'grpc.health.v1.Health' in services and 'grpc.channelz.v1.Channelz' in services, services
Create, create = method('CreateGpu'); Get, get = method('GetGpu'); List, list_ = method('ListGpus')
Update, update = method('UpdateGpu'); Status, update_status = method('UpdateGpuStatus')
Patch, patch = method('PatchGpu'); Delete, delete = method('DeleteGpu'); Watch, watch = method('WatchGpus')
request = Create(); request.gpu.object_meta.name = 'a'; request.gpu.spec.uuid = 'GPU-12'
request.gpu.object_meta.labels['tier'] = 'gold'
made = create(request)
assert made.object_meta.generation == 1 and made.object_meta.namespace == 'default'
assert code_of(create, request) == 'ALREADY_EXISTS'
events = watch(Watch())
assert next(events).type == 'ADDED'
request = Update(); request.gpu.CopyFrom(made); request.gpu.spec.uuid = 'GPU-13'
updated = update(request)
assert updated.object_meta.generation == 2
assert code_of(update, request) == 'ABORTED'
event = next(events)
assert event.type == 'MODIFIED' and event.object == updated, event
request = Status(); request.gpu.object_meta.name = 'a'
request.gpu.status.conditions.add(type='Ready', status='True', reason='Fine')
assert update_status(request).status.conditions[0].last_transition_time.seconds > 0
request = Patch(name='a', patch_type='application/merge-patch+json', data=b'{{"metadata":{{"labels":{{"tier":null}}}}}}')
assert not patch(request).object_meta.labels
assert code_of(patch, Patch(name='a', patch_type='text/plain')) == 'INVALID_ARGUMENT'
listed = list_(List()).gpu_list
assert len(listed.items) == 1 and listed.type_meta.kind == 'GPUList'
watched = watch(Watch(opts=dict(resource_version=made.object_meta.resource_version, timeout_seconds=1)))
assert [event.type for event in watched] == ['MODIFIED'] * 3
delete(Delete(name='a'))
assert code_of(get, Get(name='a')) == 'NOT_FOUND'
assert [next(events).type for _ in range(3)][-1] == 'DELETED'
from grpc_reflection.v1alpha import reflection_pb2
stream = channel.stream_stream('/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
    reflection_pb2.ServerReflectionRequest.SerializeToString, reflection_pb2.ServerReflectionResponse.FromString)
answer = next(stream(iter([reflection_pb2.ServerReflectionRequest(list_services='')])))
assert 'nvidia.nvsentinel.v1alpha1.GpuService' in [s.name for s in answer.list_services_response.service]
print('all well')
"#
        );
        assert!(python(script, vec![address(&f)]).await.contains("all well"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn channelz_counts_calls_and_messages_of_each_socket() {
    let f = Fixture::start_with(Storage::Memory, |config| {
        config.admin = Some("127.0.0.1:0".parse().unwrap());
    })
    .await;
    let script = format!(
        r#"{BEGIN}{CALLS}
from grpc_channelz.v1 import channelz_pb2 as messages, channelz_pb2_grpc
admin = channelz_pb2_grpc.ChannelzStub(grpc.insecure_channel(sys.argv[2]))
Create, create = method('CreateGpu'); Get, get = method('GetGpu'); Watch, watch = method('WatchGpus')
for number in range(5):
    request = Create(); request.gpu.object_meta.name = 'g%d' % number; request.gpu.spec.uuid = 'GPU-1'
    create(request)
assert code_of(get, Get(name='none')) == 'NOT_FOUND'
events = watch(Watch())
for _ in range(5): next(events)
server = admin.GetServers(messages.GetServersRequest()).server[0]
names = sorted(socket.name for socket in server.listen_socket)
assert sys.argv[1] in names and len(names) == 2, names
before = server.data
assert before.calls_succeeded >= 5 and before.calls_failed >= 1, before
assert before.calls_started > before.calls_succeeded + before.calls_failed, 'the watch and this call are open'
sockets = admin.GetServerSockets(messages.GetServerSocketsRequest(server_id=server.ref.server_id)).socket_ref
found = [admin.GetSocket(messages.GetSocketRequest(socket_id=s.socket_id)).socket for s in sockets]
api = [s for s in found if s.local.uds_address.filename == sys.argv[1][len('unix://'):] and s.data.streams_failed]
assert len(api) == 1, found
data = api[0].data
assert 'uid=' in api[0].remote.uds_address.filename
# Reflection's streams, which this client drops, may count as failed beside the one that did.
assert data.streams_failed >= 1 and data.streams_succeeded >= 5, data
assert data.messages_received >= 7 and data.messages_sent >= 10, data
assert data.last_message_sent_timestamp.seconds > 0
over_tcp = [s for s in found if s.remote.WhichOneof('address') == 'tcpip_address']
assert len(over_tcp) == 1 and over_tcp[0].local.tcpip_address.port == int(sys.argv[2].split(':')[1])
assert admin.GetServer(messages.GetServerRequest(server_id=server.ref.server_id)).server.data.calls_started > before.calls_started
assert admin.GetTopChannels(messages.GetTopChannelsRequest()).end
listening = admin.GetSocket(messages.GetSocketRequest(socket_id=server.listen_socket[0].socket_id)).socket
assert listening.ref.name in names
try:
    admin.GetSocket(messages.GetSocketRequest(socket_id=99999)); raise SystemExit('found what is not there')
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.NOT_FOUND
events.cancel(); channel.close()
import time
deadline = time.time() + 5
while len(admin.GetServerSockets(messages.GetServerSocketsRequest(server_id=server.ref.server_id)).socket_ref) != 1:
    assert time.time() < deadline, 'closed sockets stay'
    time.sleep(0.05)
print('all well')
"#
    );
    let admin = format!("127.0.0.1:{}", f.server.admin.unwrap().port());
    assert!(python(script, vec![address(&f), admin]).await.contains("all well"));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_follow_the_storage() {
    let f = Fixture::start_with(Storage::Disk, |config| {
        config.admin = Some("127.0.0.1:0".parse().unwrap());
        config.metrics = Some("127.0.0.1:0".parse().unwrap());
    })
    .await;
    f.client.clone().create(gpu("a")).await.unwrap();
    // Another process takes the database for itself for a while: nothing can be written.
    let script = format!(
        r#"{BEGIN}
import sqlite3, time, urllib.request
from grpc_health.v1 import health_pb2, health_pb2_grpc
service = 'nvidia.nvsentinel.v1alpha1.GpuService'
stubs = [health_pb2_grpc.HealthStub(channel), health_pb2_grpc.HealthStub(grpc.insecure_channel(sys.argv[2]))]
def seen():
    found = set()
    for stub in stubs:
        for name in ['', service]:
            status = stub.Check(health_pb2.HealthCheckRequest(service=name)).status
            found.add(health_pb2.HealthCheckResponse.ServingStatus.Name(status))
    text = urllib.request.urlopen('http://%s/metrics' % sys.argv[3]).read().decode()
    line = [l for l in text.splitlines() if l.startswith('device_apiserver_service_status{{')]
    assert len(line) == 1 and 'service="%s"' % service in line[0], line
    found.add(int(line[0].split()[-1]))
    return found
def wait(expected):
    deadline = time.time() + 20
    while seen() != expected:
        assert time.time() < deadline, (seen(), expected)
        time.sleep(0.1)
wait({{'SERVING', 1}})
try:
    stubs[0].Check(health_pb2.HealthCheckRequest(service='nothing')); raise SystemExit('health of nothing')
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.NOT_FOUND
changes = stubs[0].Watch(health_pb2.HealthCheckRequest(service=service))
assert next(changes).status == 1
other = sqlite3.connect(sys.argv[4], isolation_level=None)
other.execute('BEGIN IMMEDIATE')
wait({{'NOT_SERVING', 2}})
assert next(changes).status == 2
other.execute('ROLLBACK')
wait({{'SERVING', 1}})
assert next(changes).status == 1
print('all well')
"#
    );
    let side = |address: std::net::SocketAddr| format!("127.0.0.1:{}", address.port());
    let arguments = vec![
        address(&f),
        side(f.server.admin.unwrap()),
        side(f.server.metrics.unwrap()),
        f.folder.path().join("state.db").display().to_string(),
    ];
    assert!(python(script, arguments).await.contains("all well"));
    assert!(f.client.clone().get("a").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_the_names_and_labels_of_dashboards() {
    let f = Fixture::start_with(Storage::Disk, |config| {
        config.metrics = Some("127.0.0.1:0".parse().unwrap());
        config.retention = Duration::from_millis(300);
    })
    .await;
    let mut client = f.client.clone();
    client.create(gpu("a")).await.unwrap();
    assert!(client.create(gpu("a")).await.is_err());
    let script = r#"
import sys, json, time, urllib.request
get = lambda path: urllib.request.urlopen('http://%s%s' % (sys.argv[1], path)).read().decode()
version = json.loads(get('/version'))
assert version['gitVersion'].startswith('v') and version['platform'].startswith('linux/'), version
deadline = time.time() + 20
while True:
    text = get('/metrics')
    if 'kine_compact_total{result="success"} 0' not in text: break
    assert time.time() < deadline, 'no compaction'
    time.sleep(0.1)
def value(name, *labels):
    found = [l for l in text.splitlines() if l.startswith(name + '{') and all(label in l for label in labels)]
    assert len(found) == 1, (name, labels, found)
    return float(found[0].split()[-1])
labels = ['version="', 'revision="', 'build_date="', 'goversion="', 'compiler="', 'platform="']
assert value('device_apiserver_build_info', *labels) == 1
create = ['grpc_type="unary"', 'grpc_service="nvidia.nvsentinel.v1alpha1.GpuService"', 'grpc_method="CreateGpu"']
assert value('grpc_server_started_total', *create) == 2
assert value('grpc_server_handled_total', 'grpc_code="OK"', *create) == 1
assert value('grpc_server_handled_total', 'grpc_code="AlreadyExists"', *create) == 1
assert value('grpc_server_msg_received_total', *create) == 2
assert value('grpc_server_msg_sent_total', *create) == 1
assert value('grpc_server_handling_seconds_count', *create) == 2
assert value('grpc_server_started_total', 'grpc_method="WatchGpus"', 'grpc_type="server_stream"') == 0
assert value('kine_sql_total', 'error_code=""', 'name="commit"') >= 1
assert value('kine_sql_time_seconds_count', 'error_code=""', 'name="commit"') >= 1
assert value('kine_compact_total', 'result="success"') >= 1
assert value('kine_insert_errors_total', 'retriable="true"') == 0
try:
    get('/other'); raise SystemExit('found /other')
except urllib.error.HTTPError as error:
    assert error.code == 404
print('all well')
"#;
    let address = format!("127.0.0.1:{}", f.server.metrics.unwrap().port());
    assert!(python(script.to_owned(), vec![address]).await.contains("all well"));
}
