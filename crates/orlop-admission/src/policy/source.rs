//! Policies with their bindings.
//!
//! Snapshots of the listers say what is in force. A policy is compiled when it is first seen, and again only if its spec
//! changes. Policies without a binding are not compiled.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use orlop_api::status::Status;
use serde_json::Value;
use tokio::sync::Mutex;

use super::definition::{Binding, Definition, text};
use crate::listers::{Listers, Resource, Snapshot};

/// A policy with its compiled expressions.
#[derive(Debug)]
pub(super) struct Policy<C> {
    pub(super) definition: Definition,
    pub(super) compiled: C,
}

/// A policy and its bindings.
#[derive(Debug)]
pub(super) struct Hook<C> {
    pub(super) policy: Arc<Policy<C>>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

/// Everything in force at a pair of snapshots.
#[derive(Debug)]
pub(super) struct Hooks<C> {
    /// By name of the policy.
    pub(super) list: Vec<Hook<C>>,
    revisions: (i64, i64),
    /// Compiled policies with the objects they came from.
    policies: HashMap<String, (Arc<Value>, Arc<Policy<C>>)>,
    bindings: HashMap<String, (Arc<Value>, Arc<Binding>)>,
}

/// The policies of one kind.
#[derive(Debug)]
pub(super) struct Source<C> {
    policies: Resource<'static>,
    bindings: Resource<'static>,
    compile: fn(&Value) -> C,
    current: ArcSwap<Hooks<C>>,
    building: Mutex<()>,
}

impl<C> Source<C> {
    pub(super) fn new(
        policies: Resource<'static>,
        bindings: Resource<'static>,
        compile: fn(&Value) -> C,
    ) -> Self {
        let none = Hooks {
            list: Vec::new(),
            revisions: (-1, -1),
            policies: HashMap::new(),
            bindings: HashMap::new(),
        };
        Self { policies, bindings, compile, current: ArcSwap::from_pointee(none), building: Mutex::default() }
    }

    /// Returns true if it is known that no policy is bound.
    pub(super) fn is_empty(&self, listers: &dyn Listers) -> bool {
        let is_empty = |resource| listers.loaded(resource).is_some_and(|snapshot| snapshot.is_empty());
        is_empty(self.bindings) || is_empty(self.policies)
    }

    /// Returns the policies in force.
    pub(super) async fn hooks(&self, listers: &dyn Listers) -> Result<Arc<Hooks<C>>, Status> {
        let policies = list(listers, self.policies).await?;
        let bindings = list(listers, self.bindings).await?;
        let revisions = (policies.revision(), bindings.revision());
        let current = self.current.load_full();
        if current.revisions == revisions {
            return Ok(current);
        }
        // One request compiles a new policy, and the others wait for it.
        let _building = self.building.lock().await;
        let current = self.current.load_full();
        if current.revisions == revisions {
            return Ok(current);
        }
        let next = Arc::new(self.next(&current, &policies, &bindings, revisions));
        // A request that began earlier must not put back what is no longer in force.
        if current.revisions.0 <= revisions.0 && current.revisions.1 <= revisions.1 {
            self.current.store(next.clone());
        }
        Ok(next)
    }

    fn next(
        &self,
        before: &Hooks<C>,
        policies: &Snapshot,
        bindings: &Snapshot,
        revisions: (i64, i64),
    ) -> Hooks<C> {
        let mut next =
            Hooks { list: Vec::new(), revisions, policies: HashMap::new(), bindings: HashMap::new() };
        let mut by_policy: HashMap<String, Vec<Arc<Binding>>> = HashMap::new();
        for object in bindings.iter() {
            let name = text(&object["metadata"], "name").to_owned();
            let known = before.bindings.get(&name).filter(|(source, _)| has_same_spec(source, object));
            let binding =
                known.map_or_else(|| Arc::new(Binding::read(object)), |(_, binding)| binding.clone());
            by_policy.entry(binding.policy.clone()).or_default().push(binding.clone());
            next.bindings.insert(name, (object.clone(), binding));
        }
        for object in policies.iter() {
            let name = text(&object["metadata"], "name").to_owned();
            let Some(bindings) = by_policy.remove(&name) else { continue };
            let known = before.policies.get(&name).filter(|(source, _)| has_same_spec(source, object));
            let policy = known.map_or_else(
                || {
                    Arc::new(Policy {
                        definition: Definition::read(object),
                        compiled: (self.compile)(object),
                    })
                },
                |(_, policy)| policy.clone(),
            );
            next.list.push(Hook { policy: policy.clone(), bindings });
            next.policies.insert(name, (object.clone(), policy));
        }
        next
    }
}

/// Lists a resource, without waiting if it is loaded.
pub(super) async fn list(listers: &dyn Listers, resource: Resource<'_>) -> Result<Arc<Snapshot>, Status> {
    match listers.loaded(resource) {
        Some(snapshot) => Ok(snapshot),
        None => listers.list(resource).await,
    }
}

fn has_same_spec(one: &Arc<Value>, other: &Arc<Value>) -> bool {
    Arc::ptr_eq(one, other) || one["spec"] == other["spec"]
}
