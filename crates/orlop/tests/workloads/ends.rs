//! Ends of programs, and logs that are rotated.

use std::time::{Duration, Instant};

use crate::{
    cluster::{cluster, pod},
    support::daemon::Daemon,
};

#[test]
fn program_that_ignores_its_end_is_killed_after_the_grace() {
    let cluster = cluster(&[]);
    let spec = "{terminationGracePeriodSeconds: 3, containers: [{name: c, image: local/sh, \
        command: [sh, -c, 'trap \"\" TERM; echo deaf; while :; do sleep 1; done']}]}";
    cluster.create(&pod("p", spec));
    cluster.eventually(&["logs", "p"], |log| log == "deaf");
    let begun = Instant::now();
    cluster.kubectl(&["delete", "pod", "p", "--wait=false"]);
    assert!(!cluster.field("p", ".metadata.deletionTimestamp").is_empty());
    assert!(!cluster.processes().is_empty(), "it has its grace");
    cluster.kubectl(&["wait", "--for=delete", "pod/p", "--timeout=60s"]);
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    cluster.eventually(&["get", "pods", "-o", "name"], |_| cluster.processes().is_empty());
}

#[test]
fn node_that_stops_lets_programs_end_and_starts_them_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data_dir, note) = (folder.path().join("data"), folder.path().join("note"));
    let options = ["--node", "--node-name", "n1", "--shutdown-grace-period", "30s"];
    let daemon = Daemon::start(&data_dir, &options);
    let program = format!(
        "trap 'sleep 1; echo ended >> {0}; exit 0' TERM; echo began >> {0}; while :; do sleep 0.1; done",
        note.display()
    );
    let spec = serde_json::json!({"containers": [{"name": "c", "image": "local/sh", "command": ["sh", "-c", program],
        "volumeMounts": [{"name": "note", "mountPath": folder.path()}]}],
        "volumes": [{"name": "note", "hostPath": {"path": folder.path()}}]});
    daemon.with_input(&["create", "-f", "-"], &pod("p", &spec.to_string()));
    daemon.kubectl(&["wait", "--for=condition=Ready", "pod/p", "--timeout=60s"]);
    let noted = |wanted: &str| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let found = std::fs::read_to_string(&note).unwrap_or_default();
            if found == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{found:?} is not {wanted:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    noted("began\n");
    daemon.stop();
    noted("began\nended\n");
    let daemon = Daemon::start(&data_dir, &options);
    noted("began\nended\nbegan\n");
    daemon.kubectl(&["wait", "--for=condition=Ready", "pod/p", "--timeout=60s"]);
    daemon.stop();
}

#[test]
fn long_logs_are_rotated_and_old_ones_removed() {
    let cluster = cluster(&[]);
    // 66 MiB in lines of 1 KiB: more than the five files of 10 MiB that are kept.
    let program = "yes $(printf '%01000d' 7) | head -n 67584; echo last; sleep 1234";
    let spec = serde_json::json!({"terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "local/sh", "command": ["sh", "-c", program]}]});
    cluster.create(&pod("p", &spec.to_string()));
    cluster.eventually(&["logs", "p", "--tail=1"], |log| log == "last");
    let data_dir = cluster.kubeconfig().parent().expect("a folder").join("node/logs");
    let pods: Vec<_> = std::fs::read_dir(data_dir).expect("logs").flatten().collect();
    let files = std::fs::read_dir(pods[0].path().join("c")).expect("logs").flatten();
    let sizes: Vec<u64> = files.map(|file| file.metadata().expect("a file").len()).collect();
    assert_eq!(sizes.len(), 5, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= (10 << 20) + (64 << 10)), "{sizes:?}");
    let log = cluster.kubectl(&["logs", "p"]);
    assert!(log.len() < 51 << 20 && log.ends_with("7\nlast"), "{} bytes", log.len());
}
