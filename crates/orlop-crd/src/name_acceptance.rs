//! Name acceptance.
//!
//! Names are unique within a group. A definition requests names in its spec and is granted them in its status; the
//! first definition to be granted a name keeps it.

use crate::conditions::{API_APPROVAL, Condition, ESTABLISHED, NAMES_ACCEPTED, NON_STRUCTURAL_SCHEMA};
use crate::definition::Definition;
use crate::names::Names;
use crate::validate::api_approval::{Approval, is_protected};
use crate::validate::conversion::has_broken_ca_bundle;
use orlop_api::field_error::{FieldError, FieldPath, aggregate};
use orlop_api::go_text::quote;
use orlop_api::schema::structural;
use orlop_api::schema::unstructured::{entry, flag, list, text};
use serde_json::Value;
use std::collections::HashSet;

/// Accepted names and conditions of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    pub names: Names,
    pub names_accepted: Condition,
    /// False with reason `Installing` once all names are accepted. Serving the kind then sets
    /// [`Acceptance::established`].
    pub established: Condition,
}

impl Acceptance {
    /// Returns the condition of a definition whose kind is now served. A definition whose conversion webhook has an
    /// unreadable caBundle is not served.
    pub fn established(definition: &Value) -> Condition {
        if has_broken_ca_bundle(definition) {
            let why = "The conversion webhook CABundle is invalid";
            return Condition::new(ESTABLISHED, "False", "InvalidCABundle", why);
        }
        Condition::new(ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted")
    }

    /// Returns whether all names were accepted.
    pub fn is_complete(&self) -> bool {
        self.names_accepted.is_true()
    }
}

/// Grants a definition the free names. `others` are the names that other definitions of its group hold.
pub fn accept_names<'a>(definition: &Definition, others: impl IntoIterator<Item = &'a Names>) -> Acceptance {
    let (requested, held) = (&definition.names, &definition.accepted_names);
    let mut taken = Taken::default();
    taken.add(held);
    others.into_iter().for_each(|names| taken.add(names));
    let mut names = held.clone();
    let mut conflict: Option<(&str, String)> = None;
    if let Some(message) = taken.resource(&requested.plural, &held.plural) {
        conflict = Some(("PluralConflict", message));
    } else {
        names.plural.clone_from(&requested.plural);
    }
    if let Some(message) = taken.resource(&requested.singular, &held.singular) {
        conflict = Some(("SingularConflict", message));
    } else {
        names.singular.clone_from(&requested.singular);
    }
    let fresh = requested.short_names.iter().filter(|name| !held.short_names.contains(name));
    let conflicts: Vec<_> = fresh.filter_map(|name| taken.resource(name, "")).collect();
    if conflicts.is_empty() {
        names.short_names.clone_from(&requested.short_names);
    } else {
        conflict = Some(("ShortNamesConflict", aggregate(&conflicts)));
    }
    if let Some(message) = taken.kind(&requested.kind, &held.kind) {
        conflict = Some(("KindConflict", message));
    } else {
        names.kind.clone_from(&requested.kind);
    }
    if let Some(message) = taken.kind(&requested.list_kind, &held.list_kind) {
        conflict = Some(("ListKindConflict", message));
    } else {
        names.list_kind.clone_from(&requested.list_kind);
    }
    names.categories.clone_from(&requested.categories);
    let names_accepted = match conflict {
        Some((reason, message)) => Condition::new(NAMES_ACCEPTED, "False", reason, message),
        None => Condition::new(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found"),
    };
    let established = established(definition, &names_accepted);
    Acceptance { names, names_accepted, established }
}

/// An established kind stays established, even if names conflict later.
fn established(definition: &Definition, names_accepted: &Condition) -> Condition {
    let before = definition.conditions.get(ESTABLISHED);
    if let Some(before) = before.filter(|before| before.is_true() || !names_accepted.is_true()) {
        return before.clone();
    }
    if names_accepted.is_true() {
        Condition::new(ESTABLISHED, "False", "Installing", "the initial names have been accepted")
    } else {
        Condition::new(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
    }
}

/// Names held by the definitions of a group.
#[derive(Default)]
struct Taken<'a> {
    resources: HashSet<&'a str>,
    kinds: HashSet<&'a str>,
}

impl<'a> Taken<'a> {
    fn add(&mut self, names: &'a Names) {
        self.resources.extend([names.plural.as_str(), names.singular.as_str()]);
        self.resources.extend(names.short_names.iter().map(String::as_str));
        self.kinds.extend([names.kind.as_str(), names.list_kind.as_str()]);
    }

    fn resource(&self, requested: &str, held: &str) -> Option<String> {
        conflict(requested, held, &self.resources)
    }

    fn kind(&self, requested: &str, held: &str) -> Option<String> {
        conflict(requested, held, &self.kinds)
    }
}

fn conflict(requested: &str, held: &str, taken: &HashSet<&str>) -> Option<String> {
    let refused = requested != held && taken.contains(requested);
    refused.then(|| format!("{} is already in use", quote(requested)))
}

/// Returns the API approval condition; `None` for groups that are not protected.
pub fn approval_condition(definition: &Value) -> Option<Condition> {
    let group = text(definition.get("spec")?, "group");
    if !is_protected(group) {
        return None;
    }
    let approval = Approval::of(definition);
    let (status, reason) = match &approval {
        Approval::Invalid => ("False", "InvalidAnnotation"),
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Approved(_) => ("True", "ApprovedAnnotation"),
        Approval::Bypassed(_) => ("False", "UnapprovedAnnotation"),
    };
    Some(Condition::new(API_APPROVAL, status, reason, approval.to_string()))
}

/// Returns the NonStructuralSchema condition; `None` if all schemas are structural.
pub fn structural_condition(definition: &Value) -> Option<Condition> {
    let spec = definition.get("spec")?;
    let mut errors: Vec<FieldError> = Vec::new();
    let mut patterns = structural::ValidationBudget::default();
    if flag(spec, "preserveUnknownFields") {
        let path = FieldPath::root("spec").child("preserveUnknownFields");
        errors.push(FieldError::invalid(&path, true, "must be false"));
    }
    for (index, version) in list(spec, "versions").iter().enumerate() {
        let Some(schema) = version.get("schema").and_then(|schema| schema.get("openAPIV3Schema")) else {
            continue;
        };
        let path =
            FieldPath::root("spec").child("versions").index(index).child("schema").child("openAPIV3Schema");
        errors.extend(structural::validate_structural_schema(schema, &path, &mut patterns));
    }
    if errors.is_empty() {
        return None;
    }
    Some(Condition::new(NON_STRUCTURAL_SCHEMA, "True", "Violations", aggregate(&errors)))
}

/// Writes accepted names and conditions into the status.
impl Acceptance {
    pub fn write(&self, definition: &mut Value, now: orlop_api::time::Time) -> bool {
        let mut conditions = crate::Conditions::of(definition);
        let set = conditions.set(self.names_accepted.clone(), now);
        let set = conditions.set(self.established.clone(), now) || set;
        let Some(status) = definition.as_object_mut().and_then(|object| entry(object, "status")) else {
            return false;
        };
        let names = self.names.to_value();
        let renamed = status.get("acceptedNames") != Some(&names);
        if set {
            status.insert("conditions".to_owned(), conditions.to_value());
        }
        if renamed {
            status.insert("acceptedNames".to_owned(), names);
        }
        set || renamed
    }
}
