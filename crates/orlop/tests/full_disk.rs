//! A server whose disk is full: it refuses writes, serves reads and deletes, starts again, and recovers with space.

mod support;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use orlop_testbed::Disk;
use support::daemon::Daemon;

fn kubectl(server: &Daemon, arguments: &[&str], input: &str) -> (bool, String) {
    server.run_kubectl(&server.kubeconfig(), arguments, input)
}

/// Creates ConfigMaps of half a megabyte, named by the server. Returns the number of them and the rest of the output.
fn create(server: &Daemon, count: usize) -> (usize, String) {
    let object = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"generateName":"large-"}},"data":{{"text":"{}"}}}}"#,
        "x".repeat(500_000),
    );
    let objects =
        format!(r#"{{"apiVersion":"v1","kind":"List","items":[{}]}}"#, vec![object; count].join(","));
    let (_, said) = kubectl(server, &["create", "--validate=false", "-f", "-"], &objects);
    let (created, rest): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.ends_with(" created"));
    (created.len(), rest.join("\n"))
}

/// Returns the names of the large ConfigMaps.
fn large(server: &Daemon) -> Vec<String> {
    let table = server.kubectl(&["get", "configmaps", "--no-headers"]);
    let names = table.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.starts_with("large-")).map(str::to_owned).collect()
}

/// Waits until `/readyz` answers 200.
#[track_caller]
fn wait_until_ready(server: &Daemon) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (ready, said) = kubectl(server, &["get", "--raw", "/readyz"], "");
        if ready {
            return;
        }
        assert!(Instant::now() < deadline, "{said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns true if `/readyz` says that the disk is full.
fn is_unready(server: &Daemon) -> bool {
    let (ready, said) = kubectl(server, &["get", "--raw", "/readyz"], "");
    !ready && said.contains("full")
}

#[track_caller]
fn assert_not_ready(server: &Daemon) {
    assert!(is_unready(server));
    assert_eq!(server.kubectl(&["get", "--raw", "/livez"]), "ok", "a restart would not help");
}

#[test]
fn server_on_a_full_disk_serves_deletes_restarts_and_recovers() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = Disk::mount(&folder.path().join("disk"), "60m") else { return };
    let data: &Path = &disk.path().join("data");
    let server = Daemon::start(data, &[]);
    let mut created = 0;
    let deadline = Instant::now() + Duration::from_secs(120);
    let refused = loop {
        let (acknowledged, refused) = create(&server, 10);
        created += acknowledged;
        // A checkpoint may make room once more.
        if !refused.is_empty() && is_unready(&server) {
            break refused;
        }
        assert!(created < 200 && Instant::now() < deadline, "never full");
    };
    assert!(created > 10, "{created}: {refused}");
    assert!(refused.contains("full"), "{refused}");
    assert_eq!(server.kubectl(&["get", "--raw", "/livez"]), "ok", "a restart would not help");
    assert_eq!(large(&server).len(), created, "what was acknowledged is there, and nothing else");

    let first = large(&server).remove(0);
    server.kubectl(&["delete", "configmap", &first]);
    server.stop();

    disk.fill("filler");
    let server = Daemon::start(data, &[]);
    assert_eq!(large(&server).len(), created - 1);
    assert_not_ready(&server);
    std::fs::remove_file(disk.path().join("filler")).expect("removed");
    server.kubectl(&["delete", "configmaps", "--all"]);
    wait_until_ready(&server);
    assert_eq!(create(&server, 1), (1, String::new()));
    server.stop();
}
