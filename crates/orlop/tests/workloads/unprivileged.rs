//! A node that is not root.

use std::{fs, os::unix::fs::MetadataExt, process::Command};

use crate::{cluster::Cluster, support::Server};

/// Somebody who has nothing on the machine.
const NOBODY: u32 = 65534;

/// Starts a server with a node as an unprivileged user. `None`, with the reason told, where this user cannot be another.
fn cluster(folder: &tempfile::TempDir) -> Option<Cluster> {
    let program = env!("CARGO_BIN_EXE_orlop");
    let is_root = fs::metadata("/proc/self").expect("this process").uid() == 0;
    let command = if is_root {
        // Where somebody else may execute it.
        let copy = folder.path().join("orlop");
        if fs::hard_link(program, &copy).is_err() {
            fs::copy(program, &copy).expect("a copy");
        }
        let files = folder.path().join("tmp");
        fs::create_dir(&files).expect("a folder");
        for path in [folder.path(), &files] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("a folder of nobody's");
        }
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&copy)
            .env("TMPDIR", &files);
        command
    } else {
        Command::new(program)
    };
    if is_root && Command::new("setpriv").arg("--version").output().is_err() {
        orlop_testbed::not_run::not_run("setpriv is not there, to be somebody else than root");
        return None;
    }
    Some(Cluster::of(Server::start_command(command, &["--node", "--node-name", "n1"])))
}

#[test]
fn containers_of_an_unprivileged_node_have_volumes_at_their_paths() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(cluster) = cluster(&folder) else { return };
    cluster.kubectl(&["create", "configmap", "settings", "--from-literal=color=blue"]);
    let container = |name: &str, context: &str, script: &str| {
        format!(
            "{{name: {name}, image: local/sh, command: [sh, -c, \"{script}; sleep 1234\"], securityContext: {context}, \
             volumeMounts: [{{name: settings, mountPath: /etc/app/deep/settings}}, {{name: settings, mountPath: /var/new/color, subPath: color}}, \
             {{name: work, mountPath: /run/app/work}}]}}"
        )
    };
    let writes = "echo mine > /etc/orlop-test && echo mine > /run/app/work/file && echo $(cat /etc/orlop-test /run/app/work/file /etc/app/deep/settings/color /var/new/color)";
    let fails = "(echo x > /etc/orlop-test || echo x > /new || echo x > /tmp/x) 2> /dev/null || echo refused";
    let spec = format!(
        "{{volumes: [{{name: settings, configMap: {{name: settings}}}}, {{name: work, emptyDir: {{}}}}], containers: [{}, {}]}}",
        container("writes", "{}", writes),
        container("fails", "{readOnlyRootFilesystem: true}", fails),
    );
    cluster.create(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {spec}}}"));
    cluster.ready("p");
    if cluster.events("MountPathEmulated").contains("no mounts") {
        orlop_testbed::not_run::not_run("this machine lets unprivileged users have no namespaces");
        return;
    }
    let log = |container: &str| {
        let arguments = ["logs", "p", "-c", container];
        cluster.eventually(&arguments, |said| !said.is_empty());
        cluster.kubectl(&arguments)
    };
    assert_eq!(log("writes"), "mine mine blueblue");
    assert_eq!(log("fails"), "refused");
    assert!(!std::path::Path::new("/etc/orlop-test").exists());
    let exec = |script: &str| cluster.kubectl(&["exec", "p", "-c", "writes", "--", "sh", "-c", script]);
    assert_eq!(exec("id -u; hostname; cat /etc/orlop-test"), "0\np\nmine");
    // The token of the service account is where clients look for it, and the file of its hosts is the pod's own.
    let namespace =
        "cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo; grep -c ' p$\\|\tp$' /etc/hosts";
    assert_eq!(exec(namespace), "default\n1");
    // Only its own processes are seen.
    assert!(!exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").contains("--ephemeral"));
    // Its service is not forwarded where its port, 443, is not for everybody.
    let ask = "import os, ssl, urllib.request\n\
        folder = '/var/run/secrets/kubernetes.io/serviceaccount/'\n\
        server = os.environ['KUBERNETES_SERVICE_HOST'] + ':' + os.environ['KUBERNETES_SERVICE_PORT']\n\
        request = urllib.request.Request('https://' + server + '/version')\n\
        request.add_header('Authorization', 'Bearer ' + open(folder + 'token').read())\n\
        trusted = ssl.create_default_context(cafile=folder + 'ca.crt')\n\
        print(urllib.request.urlopen(request, context=trusted, timeout=30).status)";
    assert_eq!(cluster.kubectl(&["exec", "p", "-c", "writes", "--", "python3", "-c", ask]), "200");
    cluster.kubectl(&["delete", "pod", "p", "--timeout=60s"]);
}
