//! Namespaces that the containers of a pod share, and kernel parameters in them.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use crate::cluster::{cluster, pod};

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Returns true if pods can have networks of their own on this machine.
pub(crate) fn has_pod_networks() -> bool {
    let has = succeeds("sh", &["-c", "test $(id -u) = 0"]) && succeeds("ip", &["-Version"]);
    if !has {
        orlop_testbed::not_run::not_run("networks of pods need root and iproute2");
    }
    has
}

#[test]
fn containers_of_a_pod_may_share_their_processes() {
    let cluster = cluster(&[]);
    let spec = |share: bool| {
        format!(
            "{{shareProcessNamespace: {share}, terminationGracePeriodSeconds: 1, containers: [\
             {{name: a, image: local/sh, command: [sh, -c, 'trap : USR1; while :; do sleep 1; done; : from-a']}},\
             {{name: b, image: local/sh, command: [sh, -c, 'sleep 1234 & wait; : from-b']}}]}}"
        )
    };
    cluster.create(&pod("shared", &spec(true)));
    cluster.ready("shared");
    let seen = |pod: &str| {
        cluster.kubectl(&[
            "exec",
            pod,
            "-c",
            "b",
            "--",
            "sh",
            "-c",
            "cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
        ])
    };
    let all = seen("shared");
    assert!(all.contains("from-a") && all.contains("from-b"), "{all}");
    // One may signal the other, and its end is not the end of the pod.
    let kill = "for f in /proc/[0-9]*; do grep -q '[s]leep.1234' $f/cmdline && kill ${f#/proc/}; done; :";
    cluster.kubectl(&["exec", "shared", "-c", "a", "--", "sh", "-c", kill]);
    cluster.wait_for("shared", ".status.containerStatuses[1].restartCount", "1");
    assert_eq!(cluster.field("shared", ".status.containerStatuses[0].restartCount"), "0");
    cluster.ready("shared");
    assert!(seen("shared").contains("from-a"), "the restarted container is in the same namespace");

    cluster.create(&pod("alone", &spec(false)));
    cluster.ready("alone");
    let own = seen("alone");
    // Without namespaces on this machine, all processes of the machine are seen.
    assert!(own.contains("from-b") && (!own.contains("from-a") || own.contains("orlop")), "{own}");
    cluster.kubectl(&["delete", "pod", "shared", "alone", "--timeout=60s"]);
    cluster.eventually(&["get", "pods", "-o", "name"], |_| cluster.processes().is_empty());
}

#[test]
fn safe_kernel_parameters_are_set_in_the_pod_alone() {
    if !has_pod_networks() {
        return;
    }
    let cluster = cluster(&["--pod-network", "own"]);
    let spec = |sysctls: &str| {
        format!(
            "{{securityContext: {{sysctls: [{sysctls}]}}, containers: [{{name: c, image: local/sleep, command: [sleep, '1234']}}]}}"
        )
    };
    let safe = "{name: kernel.shm_rmid_forced, value: '1'}, {name: net.ipv4.tcp_fin_timeout, value: '17'}, \
        {name: net/ipv4/ip_local_port_range, value: '20000 30000'}";
    let paths = ["kernel/shm_rmid_forced", "net/ipv4/tcp_fin_timeout", "net/ipv4/ip_local_port_range"]
        .map(|name| format!("/proc/sys/{name}"));
    let before = paths.clone().map(|path| std::fs::read_to_string(path).expect("a parameter"));
    cluster.create(&pod("tuned", &spec(safe)));
    cluster.ready("tuned");
    let values = cluster.kubectl(&["exec", "tuned", "--", "cat", &paths[0], &paths[1], &paths[2]]);
    assert_eq!(values.split_whitespace().collect::<Vec<_>>(), ["1", "17", "20000", "30000"]);
    assert_eq!(paths.map(|path| std::fs::read_to_string(path).expect("a parameter")), before);

    cluster.create(&pod("refused", &spec("{name: kernel.msgmax, value: '1'}")));
    cluster.wait_for("refused", ".status.reason", "SysctlForbidden");
    let message = cluster.field("refused", ".status.message");
    assert_eq!(message, "Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted");
}

#[test]
fn kernel_parameters_of_a_shared_network_are_an_event() {
    let cluster = cluster(&[]);
    let spec = "{securityContext: {sysctls: [{name: net.ipv4.tcp_syncookies, value: '1'}]}, \
        containers: [{name: c, image: local/sleep, command: [sleep, '1234']}]}";
    cluster.create(&pod("p", spec));
    cluster.ready("p");
    let said = cluster.events("SysctlsNotHonoured");
    assert!(said.ends_with("which have the values of the machine: net.ipv4.tcp_syncookies"), "{said}");
}

#[test]
fn killed_server_of_a_test_leaves_no_networks() {
    if !has_pod_networks() {
        return;
    }
    let mut cluster = cluster(&["--pod-network", "own"]);
    cluster.create(&pod("p", "{containers: [{name: c, image: local/sleep, command: [sleep, '1234']}]}"));
    cluster.ready("p");
    let device = cluster.field("p", ".status.podIP").parse::<std::net::Ipv4Addr>().expect("an address");
    let device = format!("/sys/class/net/orl{:08x}", u32::from(device));
    assert!(std::path::Path::new(&device).exists(), "{device}");
    let prefix = format!("orlop-e{}-", cluster.process().id());
    let left = || {
        let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&prefix)).count()
    };
    assert_eq!(left(), 1);
    cluster.process().kill().expect("killed");
    let deadline = Instant::now() + Duration::from_secs(60);
    while left() > 0 || std::path::Path::new(&device).exists() {
        assert!(Instant::now() < deadline, "{} namespaces are left", left());
        std::thread::sleep(Duration::from_millis(20));
    }
}
