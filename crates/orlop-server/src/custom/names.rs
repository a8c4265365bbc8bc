//! The names of a definition. Within a group each is taken once: a definition that wants a name that another
//! has waits until it is free.
//!
//! A name is held by a key of its own, written in the transaction that writes the definition, so that two
//! servers cannot both give it away.

use std::{collections::BTreeSet, sync::Arc};

use orlop_api::{object_meta, status::Status};
use orlop_crd::{Acceptance, Conditions, Definition, Names, accept};
use orlop_store::{Compare, Comparison, Delete, KeyRange, Op, Put, Read, Target};
use serde_json::Value;

use super::{definition_request, is_definition};
use crate::{
    allocation::Claims,
    cluster::{Cluster, now, trouble},
    verbs::{Request, update},
};

/// A name that is taken once in a group. Resources and kinds do not meet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Resource(String),
    Kind(String),
}

impl Held {
    /// Everything that a definition with these names holds.
    fn by(names: &Names) -> BTreeSet<Self> {
        let resources = [&names.plural, &names.singular].into_iter().chain(&names.short_names);
        let resources = resources.filter(|name| !name.is_empty()).cloned().map(Self::Resource);
        let kinds = [&names.kind, &names.list_kind].into_iter().filter(|name| !name.is_empty());
        resources.chain(kinds.cloned().map(Self::Kind)).collect()
    }

    fn key(&self, cluster: &Cluster, group: &str) -> String {
        let (of, name) = match self {
            Self::Resource(name) => ("resources", name),
            Self::Kind(name) => ("kinds", name),
        };
        cluster.own_key(&format!("allocations/names/{group}/{of}/{name}"))
    }

    /// What a definition would be called that holds nothing else.
    fn alone(self) -> Names {
        match self {
            Self::Resource(name) => Names { plural: name, ..Names::default() },
            Self::Kind(name) => Names { kind: name, ..Names::default() },
        }
    }
}

/// Claims the names of a definition, and writes what came of it into its status. `old` is absent on create.
pub(crate) async fn claim(
    cluster: &Cluster,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<Claims, Status> {
    let mut claims = Claims::default();
    let name = object_meta::text(object_meta::of(object), "name").to_owned();
    // What is not a definition yet is refused by validation.
    let Ok(mut definition) = Definition::of(object) else { return Ok(claims) };
    definition.accepted_names = accepted(old);
    let (group, had) = (definition.group.clone(), Held::by(&definition.accepted_names));
    let mut taken = Vec::new();
    for wanted in Held::by(&definition.names).difference(&had) {
        let key = wanted.key(cluster, &group);
        let read = cluster.store.read(Read::new(KeyRange::key(key.clone()))).await;
        let read = read.map_err(|error| trouble(&error))?;
        let holder = read.kvs.first();
        if holder.is_some_and(|holder| holder.value != name.as_bytes()) {
            taken.push(wanted.clone().alone());
        }
        // Whether it was free or taken, that must still be so when this is written.
        let revision = holder.map_or(0, |holder| holder.revision);
        claims.compares.push(Compare::new(KeyRange::key(key), Comparison::Equal, Target::Revision(revision)));
    }
    let acceptance = accept(&definition, &taken);
    let has = Held::by(&acceptance.names);
    for held in has.difference(&had) {
        claims.ops.push(Op::Put(Put::new(held.key(cluster, &group), name.clone())));
    }
    claims.ops.extend(had.difference(&has).map(|held| free(cluster, &group, held)));
    write(object, acceptance);
    Ok(claims)
}

fn accepted(definition: Option<&Value>) -> Names {
    let names = definition.and_then(|definition| definition.pointer("/status/acceptedNames"));
    Names::of(names.unwrap_or(&Value::Null))
}

/// Writes what came of a claim into the status. The kind is served before anyone is told, so that it is
/// established at once unless it cannot be.
fn write(object: &mut Value, mut acceptance: Acceptance) {
    if acceptance.is_complete() && !acceptance.established.is_true() {
        acceptance.established = Acceptance::established(object);
    }
    acceptance.write(object, now());
    let others = [orlop_crd::approval_condition(object), orlop_crd::structural_condition(object)];
    let mut conditions = Conditions::of(object);
    let mut changed = false;
    for condition in others.into_iter().flatten() {
        changed |= conditions.set(condition, now());
    }
    if changed {
        object["status"]["conditions"] = conditions.to_value();
    }
}

/// Gives back the names of a definition that is removed.
pub(crate) fn release(request: &Request, object: &Value) -> Vec<Op> {
    if is_definition(&request.kind) { released(&request.cluster, object) } else { Vec::new() }
}

/// What gives back the names of a definition.
pub(super) fn released(cluster: &Cluster, object: &Value) -> Vec<Op> {
    let group = object.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    Held::by(&accepted(Some(object))).iter().map(|held| free(cluster, group, held)).collect()
}

fn free(cluster: &Cluster, group: &str, held: &Held) -> Op {
    Op::Delete(Delete { range: KeyRange::key(held.key(cluster, group)), previous: false })
}

/// Looks again at definitions that wait for names, now that some may be free: writing them claims anew.
pub(super) async fn look_again(cluster: Arc<Cluster>, names: Vec<String>) {
    for name in names {
        let Some(request) = definition_request(&cluster, &name) else { return };
        match update::change(&request, false, |old| Ok(old.clone())).await {
            Ok(_) => {}
            // It went meanwhile.
            Err(status) if status.code == 404 => {}
            Err(status) => tracing::warn!(name, message = status.message, "cannot look at names again"),
        }
    }
}
