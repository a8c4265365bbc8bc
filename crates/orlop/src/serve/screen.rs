//! Screen that the server prints once it is ready.

use std::{fmt::Write, net::SocketAddr, path::PathBuf, time::Duration};

use orlop_store::Endpoint;
use serde_json::json;

/// Addresses and files of a running server.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) address: SocketAddr,
    pub(super) insecure_address: Option<SocketAddr>,
    pub(super) endpoint: Endpoint,
    pub(super) kubeconfig: PathBuf,
    /// `None` on a server that joined: the token is where the cluster was created.
    pub(super) token_file: Option<PathBuf>,
    pub(super) key_file: PathBuf,
    /// True if pods run here.
    pub(super) has_node: bool,
}

impl Screen {
    /// Returns one line of JSON, for programs.
    pub(super) fn to_json(&self) -> String {
        let mut ready = json!({"server": format!("https://{}", self.address), "kubeconfig": self.kubeconfig});
        if let Some(address) = self.insecure_address {
            ready["insecureServer"] = format!("http://{address}").into();
        }
        ready.to_string()
    }

    /// Returns a few lines for people.
    pub(super) fn to_text(&self, ready_in: Duration) -> String {
        let mut text = format!(
            "orlop serves the Kubernetes API at https://{} (ready in {} ms)\n\n",
            self.address,
            ready_in.as_millis()
        );
        let mut line = |name: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {name:<12}{value}");
        };
        line("database", self.endpoint.to_string());
        line("kubeconfig", self.kubeconfig.display().to_string());
        if let Some(file) = &self.token_file {
            line("token", file.display().to_string());
        }
        line("cluster key", self.key_file.display().to_string());
        if let Some(address) = self.insecure_address {
            line("insecure", format!("http://{address} (loopback only)"));
        }
        if matches!(self.endpoint, Endpoint::Postgres(_)) {
            let _ = write!(
                text,
                "\nTo add a server to this cluster, copy {} to it and run:\n  \
                 orlop serve --endpoint {} --cluster-key-file cluster.key\n",
                self.key_file.display(),
                self.endpoint
            );
        }
        let _ =
            write!(text, "\nTry it:\n  kubectl --kubeconfig {} get namespaces\n", self.kubeconfig.display());
        if self.has_node {
            text.push_str(
                "\nPods are processes of this machine: the image local/NAME is the program NAME on PATH. They share its\n\
                 network, so a program should listen on $POD_IP; --pod-network own is for those that do not.\n",
            );
        } else {
            text.push_str(
                "\nWorkloads are stored, not run. To run pods as processes of this machine:\n  \
                 orlop serve --node\n",
            );
        }
        text
    }
}
