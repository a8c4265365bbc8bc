//! The controllers that a control plane cannot be without, and the runtime they share: garbage collection,
//! namespace deletion, default service accounts, the root CA publisher.
//!
//! They only speak the API, through a [`kube::Client`]: in process over the server's own service, or against
//! any cluster by kubeconfig. Each can be left out, so that a kube-controller-manager does its work instead.

mod backoff;
mod discovery;
mod garbage_collector;
mod namespace_content;
mod namespaces;
mod root_ca_publisher;
pub mod runtime;
mod service_accounts;
mod status;

use kube::Client;
use runtime::Manager;
pub use runtime::UnknownController;

/// Names of all controllers, as kube-controller-manager has them.
pub const NAMES: &[&str] =
    &[garbage_collector::NAME, namespaces::NAME, service_accounts::NAME, root_ca_publisher::NAME];

/// Selects controllers by the value of `--controllers`.
pub fn select(choices: &[String]) -> Result<Vec<&'static str>, UnknownController> {
    runtime::select(NAMES, choices)
}

/// Returns a manager of the selected controllers. `root_ca` is the PEM that clients of the cluster trust.
pub fn manager(client: Client, selected: &[&'static str], root_ca: &str) -> Manager {
    let mut manager = Manager::new(client);
    let is_selected = |name: &str| selected.contains(&name);
    if is_selected(garbage_collector::NAME) {
        manager.register(garbage_collector::NAME, garbage_collector::run);
    }
    if is_selected(namespaces::NAME) {
        manager.register(namespaces::NAME, namespaces::run);
    }
    if is_selected(service_accounts::NAME) {
        manager.register(service_accounts::NAME, service_accounts::run);
    }
    if is_selected(root_ca_publisher::NAME) {
        let root_ca = root_ca.to_owned();
        manager.register(root_ca_publisher::NAME, move |context| {
            root_ca_publisher::run(context, root_ca.clone())
        });
    }
    manager
}

/// Runs the selected controllers without leader election, for ever.
pub async fn run(client: Client, selected: &[&'static str], root_ca: String) {
    manager(client, selected, &root_ca).run(std::future::pending()).await;
}
