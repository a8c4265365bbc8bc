//! Nodes that are processes of their own, and join a server.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    cluster::{cluster, pod},
    support::daemon::Daemon,
};

/// `orlop node`, killed when dropped.
pub(crate) struct NodeProcess(Child);

impl NodeProcess {
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(["node", "--node-listen", "127.0.0.1:0"]).args(options).stdout(Stdio::null());
        Self(command.spawn().expect("orlop starts"))
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("it ends");
    }

    /// Ends it in order; it must succeed.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        Command::new("kill").arg(self.0.id().to_string()).status().expect("kill");
        assert!(self.0.wait().expect("it ends").success());
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates a bootstrap token that nodes may join a server with. Returns a kubeconfig with it.
#[track_caller]
pub(crate) fn joining_kubeconfig(daemon: &Daemon, folder: &Path) -> PathBuf {
    let secret = "apiVersion: v1\nkind: Secret\ntype: bootstrap.kubernetes.io/token\nmetadata: {name: \
                  bootstrap-token-abcdef, namespace: kube-system}\nstringData: {token-id: abcdef, token-secret: \
                  0123456789abcdef, usage-bootstrap-authentication: \"true\"}\n";
    daemon.with_input(&["apply", "-f", "-"], secret);
    for (name, role) in [
        ("join", "system:node-bootstrapper"),
        ("approve", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"),
    ] {
        let role = format!("--clusterrole={role}");
        daemon.kubectl(&["create", "clusterrolebinding", name, &role, "--group=system:bootstrappers"]);
    }
    let bootstrap = folder.join("bootstrap");
    std::fs::copy(daemon.kubeconfig(), &bootstrap).expect("a copy");
    for arguments in [
        &["config", "set-credentials", "joining", "--token=abcdef.0123456789abcdef"][..],
        &["config", "set-context", "--current", "--user=joining"],
    ] {
        let (success, said) = daemon.kubectl_with(&bootstrap, arguments);
        assert!(success, "{said}");
    }
    bootstrap
}

#[test]
fn second_process_of_a_node_is_refused_and_changes_nothing() {
    let cluster = cluster(&[]);
    cluster.create(&pod("p", "{containers: [{name: c, image: local/sleep, command: [sleep, '1234']}]}"));
    cluster.ready("p");
    let version = cluster.field("p", ".metadata.resourceVersion");
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["node", "--node-listen", "127.0.0.1:0", "--node-name", "n1", "--data-dir"])
        .arg(folder.path())
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .output()
        .expect("orlop runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("another process of this machine is the node \"n1\" of this cluster"), "{said}");
    assert_eq!(cluster.field("p", ".metadata.resourceVersion"), version);
    assert_eq!(cluster.processes().len(), 1, "{:?}", cluster.processes());
}
