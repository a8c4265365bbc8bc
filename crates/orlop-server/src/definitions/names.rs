//! Names of definitions, unique in their group. A definition whose name is taken is not established until
//! the name is released.
//!
//! A name is claimed by a key of its own, written in the transaction that writes the definition, so that two
//! servers cannot both assign it.

use std::collections::BTreeSet;

use orlop_api::{object_meta, status::Status};
use orlop_crd::{Acceptance, Conditions, Definition, Names, accept_names};
use orlop_store::{Compare, Comparison, Delete, KeyRange, Op, Put, Read, Target};
use serde_json::Value;

use crate::{
    object::now,
    storage::{Contribution, ObjectStore, status_from_store_error},
};

/// A name claimed in a group. Resources and kinds have separate name spaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimedName {
    Resource(String),
    Kind(String),
}

impl ClaimedName {
    /// Returns the claims of a definition with these names.
    fn all_of(names: &Names) -> BTreeSet<Self> {
        let resources = [&names.plural, &names.singular].into_iter().chain(&names.short_names);
        let resources = resources.filter(|name| !name.is_empty()).cloned().map(Self::Resource);
        let kinds = [&names.kind, &names.list_kind].into_iter().filter(|name| !name.is_empty());
        resources.chain(kinds.cloned().map(Self::Kind)).collect()
    }

    fn key(&self, objects: &ObjectStore, group: &str) -> String {
        let (of, name) = match self {
            Self::Resource(name) => ("resources", name),
            Self::Kind(name) => ("kinds", name),
        };
        objects.own_key(&format!("allocations/names/{group}/{of}/{name}"))
    }

    /// Returns names of a definition that claims only this.
    fn into_names(self) -> Names {
        match self {
            Self::Resource(name) => Names { plural: name, ..Names::default() },
            Self::Kind(name) => Names { kind: name, ..Names::default() },
        }
    }
}

/// Claims the names of a definition and writes the result into its status. `old` is absent on create.
pub(crate) async fn claim(
    objects: &ObjectStore,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<Contribution, Status> {
    let mut claims = Contribution::default();
    let name = object_meta::text(object_meta::of(object), "name").to_owned();
    // Validation refuses what is not a definition.
    let Ok(mut definition) = Definition::of(object) else { return Ok(claims) };
    definition.accepted_names = accepted(old);
    let (group, had) = (definition.group.clone(), ClaimedName::all_of(&definition.accepted_names));
    let mut taken = Vec::new();
    for wanted in ClaimedName::all_of(&definition.names).difference(&had) {
        let key = wanted.key(objects, &group);
        let read = objects.store.read(Read::new(KeyRange::key(key.clone()))).await;
        let read = read.map_err(|error| status_from_store_error(&error))?;
        let holder = read.kvs.first();
        if holder.is_some_and(|holder| holder.value != name.as_bytes()) {
            taken.push(wanted.clone().into_names());
        }
        // Free or taken, the name must still be so at the commit.
        let revision = holder.map_or(0, |holder| holder.revision);
        claims.compares.push(Compare::new(KeyRange::key(key), Comparison::Equal, Target::Revision(revision)));
    }
    let acceptance = accept_names(&definition, &taken);
    let has = ClaimedName::all_of(&acceptance.names);
    for claimed in has.difference(&had) {
        claims.ops.push(Op::Put(Put::new(claimed.key(objects, &group), name.clone())));
    }
    claims.ops.extend(had.difference(&has).map(|claimed| free(objects, &group, claimed)));
    write_status(object, acceptance);
    Ok(claims)
}

fn accepted(definition: Option<&Value>) -> Names {
    let names = definition.and_then(|definition| definition.pointer("/status/acceptedNames"));
    Names::of(names.unwrap_or(&Value::Null))
}

/// Writes the result of a claim into the status. The kind is served before the write is answered, so a
/// definition is established at once.
fn write_status(object: &mut Value, mut acceptance: Acceptance) {
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

/// Returns the operations that release the names of a definition.
pub(crate) fn release(objects: &ObjectStore, object: &Value) -> Vec<Op> {
    let group = object.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    ClaimedName::all_of(&accepted(Some(object))).iter().map(|claimed| free(objects, group, claimed)).collect()
}

fn free(objects: &ObjectStore, group: &str, claimed: &ClaimedName) -> Op {
    Op::Delete(Delete { range: KeyRange::key(claimed.key(objects, group)), previous: false })
}
