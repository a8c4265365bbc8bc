//! The controllers that a control plane cannot be without: garbage collection, the end of namespaces,
//! default service accounts and the root certificate.
//!
//! They only speak the API, through a [`kube::Client`]: in process over the server's own service, or
//! against any cluster by kubeconfig. Each can be left out, so that a kube-controller-manager can do its
//! work instead.

mod discovered;
mod garbage_collector;
mod namespaces;
mod per_namespace;
mod retry;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use kube::Client;

/// Every controller, by the name that kube-controller-manager gives it.
pub const NAMES: &[&str] = &[
    garbage_collector::NAME,
    namespaces::NAME,
    per_namespace::SERVICE_ACCOUNTS,
    per_namespace::ROOT_CERTIFICATE,
];

/// What can go wrong when controllers are chosen.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// There is no such controller.
    #[error("there is no controller {name:?}; there are: {}", NAMES.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
}

/// Which controllers run: `*` for all, `name` for one, `-name` for all but one, as kube-controller-manager
/// reads its `--controllers`.
pub fn chosen(choices: &[String]) -> Result<Vec<&'static str>, Error> {
    let find = |name: &str| {
        NAMES
            .iter()
            .copied()
            .find(|known| *known == name)
            .ok_or_else(|| Error::Unknown { name: name.to_owned() })
    };
    let all =
        choices.iter().any(|choice| choice == "*") || choices.iter().all(|choice| choice.starts_with('-'));
    let mut running: Vec<&'static str> = if all { NAMES.to_vec() } else { Vec::new() };
    for choice in choices.iter().filter(|choice| *choice != "*") {
        match choice.strip_prefix('-') {
            Some(name) => {
                let name = find(name)?;
                running.retain(|known| *known != name);
            }
            None => {
                let name = find(choice)?;
                if !running.contains(&name) {
                    running.push(name);
                }
            }
        }
    }
    Ok(running)
}

/// Runs controllers, for ever. `root_certificate` is what clients of the cluster trust.
pub async fn run(client: Client, controllers: &[&'static str], root_certificate: String) {
    let running = controllers.iter().map(|name| -> BoxFuture<'_, ()> {
        let client = client.clone();
        match *name {
            garbage_collector::NAME => garbage_collector::run(client).boxed(),
            namespaces::NAME => namespaces::run(client).boxed(),
            per_namespace::SERVICE_ACCOUNTS => per_namespace::service_accounts(client).boxed(),
            _ => per_namespace::root_certificate(client, root_certificate.clone()).boxed(),
        }
    });
    join_all(running).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_as_kube_controller_manager_chooses() {
        let chosen = |text: &[&str]| chosen(&text.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
        assert_eq!(chosen(&[]).unwrap(), NAMES);
        assert_eq!(chosen(&["*"]).unwrap(), NAMES);
        let without = chosen(&["-namespace-controller"]).unwrap();
        assert!(!without.contains(&"namespace-controller") && without.len() == NAMES.len() - 1);
        assert_eq!(chosen(&["namespace-controller"]).unwrap(), ["namespace-controller"]);
        assert_eq!(chosen(&["nonsense"]), Err(Error::Unknown { name: "nonsense".into() }));
    }
}
