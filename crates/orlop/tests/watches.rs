//! Memory of very many idle watches over real connections.

mod support;

use std::{collections::HashSet, fs, net::TcpStream, path::Path, time::Duration};

use orlop_testbed::http2::{DATA, END_HEADERS, END_STREAM, HEADERS, OK, Peer, get_fields};
use support::Server;

const CONNECTIONS: usize = 100;
/// Concurrent streams that Kubernetes allows on one connection.
const STREAMS: usize = 100;
const WATCHES: usize = CONNECTIONS * STREAMS;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Opens a connection with as many watches as it may have, and waits for all of them to start.
fn watching(address: &str, path: &str, authorization: &str) -> Peer<TcpStream> {
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    let mut peer = Peer::new(socket).expect("a connection");
    let fields = get_fields("http", path, address, &[("authorization", authorization)]);
    for number in 0..STREAMS {
        peer.send(HEADERS, END_HEADERS | END_STREAM, 2 * number as u32 + 1, &fields).expect("sent");
    }
    let mut begun = 0;
    let all = peer.until(|frame| {
        if frame.kind == HEADERS {
            assert_eq!(frame.payload.first(), Some(&OK), "a watch is refused");
            begun += 1;
        }
        begun == STREAMS
    });
    assert!(all.expect("answers"), "only {begun} watches began");
    peer
}

fn resident_bytes(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

#[test]
fn ten_thousand_idle_watches_cost_a_few_kilobytes_each() {
    let mut server = Server::start_with(&["--insecure-listen", "127.0.0.1:0"]);
    let process = server.process().id();
    let url = server.ready()["insecureServer"].as_str().expect("the plain address");
    let address = url.strip_prefix("http://").expect("a plain address").to_owned();
    let kubeconfig = Path::new(server.ready()["kubeconfig"].as_str().expect("a kubeconfig"));
    let token = fs::read_to_string(kubeconfig.with_file_name("pki").join("admin.token")).expect("the token");
    let authorization = format!("Bearer {}", token.trim());
    let list = server.kubectl(&["get", "--raw", &format!("{MAPS}?limit=1")]);
    let list: serde_json::Value = serde_json::from_str(&list).expect("a list");
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let path = format!("{MAPS}?watch=1&resourceVersion={version}&fieldSelector=metadata.name%3Dnews");

    // The first connections pay for shared memory.
    let first = watching(&address, &path, &authorization);
    let before = resident_bytes(process);
    let mut connections: Vec<_> =
        (0..CONNECTIONS).map(|_| watching(&address, &path, &authorization)).collect();
    let each = resident_bytes(process).saturating_sub(before) / WATCHES;
    println!("{WATCHES} idle watches on {CONNECTIONS} connections: {each} bytes each");
    assert!(each < 16 << 10, "{each} bytes each");

    connections.push(first);
    server.kubectl(&["create", "configmap", "news"]);
    for peer in &mut connections {
        let mut notified = HashSet::new();
        let all = peer.until(|frame| {
            if frame.kind == DATA && frame.payload.starts_with(b"{\"type\":\"ADDED\"") {
                notified.insert(frame.stream);
            }
            notified.len() == STREAMS
        });
        assert!(all.expect("events"), "only {} watches were notified", notified.len());
    }
}
