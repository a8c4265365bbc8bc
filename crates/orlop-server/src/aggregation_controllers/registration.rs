//! Registers an APIService for every group version that the server itself serves.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures_util::future::join_all;
use orlop_aggregator::registration::{Action, Desired, History, action};
use serde_json::{Value, json};

use super::{path, send};
use crate::{chain::Chain, registry::Kinds};

/// Writes that are open at a time.
const CONCURRENCY: usize = 64;

/// Keeps the APIServices of the server's own group versions.
pub(super) struct Registrar {
    chain: Chain,
    /// Names of those that existed at the start.
    at_start: HashSet<String>,
    /// Names of those that this process has synced.
    synced: HashSet<String>,
}

impl Registrar {
    pub(super) fn new(chain: Chain) -> Self {
        let at_start = chain.cluster().aggregator.catalog().services().keys().cloned().collect();
        Self { chain, at_start, synced: HashSet::new() }
    }

    /// Creates, restores and deletes APIServices as needed. An error means that some writes failed.
    pub(super) async fn reconcile(&mut self) -> Result<(), u16> {
        let cluster = self.chain.cluster();
        let catalog = cluster.aggregator.catalog().clone();
        let desired = desired(&cluster.objects.registry.kinds());
        let names: BTreeSet<&String> = desired.keys().chain(catalog.services().keys()).collect();
        let (mut done, mut open) = (Vec::new(), Vec::new());
        for name in names {
            let (current, wanted) = (catalog.services().get(name), desired.get(name));
            let history =
                History { synced: self.synced.contains(name), at_start: self.at_start.contains(name) };
            let action = action(current.map(AsRef::as_ref), wanted, history);
            match request(action, name, wanted, current.map_or("", |current| current.uid.as_str())) {
                None => done.push(name.clone()),
                Some(request) => open.push((name.clone(), request)),
            }
        }
        self.synced.extend(done);
        let mut failed = Ok(());
        // Concurrent creates share a group commit.
        for chunk in open.chunks(CONCURRENCY) {
            let sent = chunk.iter().map(|(_, (method, path, body))| send(&self.chain, method, path, body));
            for ((name, _), outcome) in chunk.iter().zip(join_all(sent).await) {
                match outcome {
                    Ok(()) => drop(self.synced.insert(name.clone())),
                    Err(code) => failed = Err(code),
                }
            }
        }
        failed
    }
}

/// Returns the APIServices that should exist, by name.
fn desired(kinds: &Kinds) -> BTreeMap<String, Desired> {
    let mut desired = BTreeMap::new();
    let mut last = None;
    for kind in kinds.iter() {
        let (group, version) = (&kind.gvk.group, &kind.gvk.version);
        if last == Some((group, version, kind.flags.custom)) {
            continue;
        }
        last = Some((group, version, kind.flags.custom));
        let wanted = match Desired::builtin(group, version) {
            None if kind.flags.custom => Some(Desired::custom(group, version)),
            builtin => builtin,
        };
        if let Some(wanted) = wanted {
            desired.insert(wanted.name(), wanted);
        }
    }
    desired
}

/// Returns the method, path and body of an action.
fn request(
    action: Action,
    name: &str,
    desired: Option<&Desired>,
    uid: &str,
) -> Option<(&'static str, String, Value)> {
    match (action, desired) {
        (Action::Create, Some(desired)) => Some(("POST", path(""), desired.object())),
        (Action::Update, Some(desired)) => {
            let mut spec = desired.spec();
            for field in ["service", "caBundle", "insecureSkipTLSVerify"] {
                spec[field] = Value::Null;
            }
            Some(("PATCH", path(name), json!({"spec": spec})))
        }
        (Action::Delete, _) => Some(("DELETE", path(name), json!({"preconditions": {"uid": uid}}))),
        _ => None,
    }
}
