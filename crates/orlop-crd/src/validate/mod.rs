//! Validation of CustomResourceDefinitions.
//!
//! Rules, texts and order match Kubernetes. Updates tolerate violations of the stored definition:
//! see [`Options`].

pub(crate) mod api_approval;
mod ca_bundle;
pub(crate) mod conversion;
mod names;
mod options;
mod schema;
pub(crate) mod spec;
mod subresources;
mod versions;
pub(crate) mod walk;
mod webhook;

pub use ca_bundle::ca_bundle_problem;
pub use webhook::{validate_webhook_service, validate_webhook_url};

use crate::conditions::{Conditions, ESTABLISHED};
use options::Options;
use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::names::{NameRule, dns1123_subdomain};
use orlop_api::object_meta::{self, IMMUTABLE, MetaRules};
use orlop_api::schema::unstructured::{strings, text};
use serde_json::Value;
use spec::Spec;

/// Validates a definition about to be created: defaulted, its status cleared but for `storedVersions`.
pub fn validate_create(definition: &Value) -> Vec<FieldError> {
    let spec = Spec::of(definition);
    let mut errors = metadata(definition, &spec);
    errors.extend(validate_spec(&spec, &Options::create()));
    errors.extend(validate_status_and_approval(definition, None, &spec));
    errors
}

/// Validates a definition that replaces `old`.
pub fn validate_update(definition: &Value, old: &Value) -> Vec<FieldError> {
    let (spec, old_spec) = (Spec::of(definition), Spec::of(old));
    let established = Conditions::of(old).is_true(ESTABLISHED);
    let mut errors = update_metadata(definition, old);
    errors.extend(validate_spec(&spec, &Options::update(&spec, &old_spec, established)));
    let path = spec::path();
    let mut immutable = |new: &str, old: &str, path: FieldPath| {
        if new != old {
            errors.push(FieldError::invalid(&path, new, IMMUTABLE));
        }
    };
    let (names, old_names) = (spec.names, old_spec.names);
    if established {
        immutable(text(spec.source, "scope"), text(old_spec.source, "scope"), path.child("scope"));
        immutable(text(names, "kind"), text(old_names, "kind"), path.child("names").child("kind"));
    }
    immutable(text(spec.source, "group"), text(old_spec.source, "group"), path.child("group"));
    immutable(text(names, "plural"), text(old_names, "plural"), path.child("names").child("plural"));
    errors.extend(validate_status_and_approval(definition, Some(old), &spec));
    errors
}

/// Validates a definition whose status replaces `old`'s.
pub fn validate_status_update(definition: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = update_metadata(definition, old);
    errors.extend(validate_accepted_names(definition));
    errors
}

fn metadata(definition: &Value, spec: &Spec<'_>) -> Vec<FieldError> {
    let meta = object_meta::of(definition);
    let path = FieldPath::root("metadata");
    let rules = MetaRules { namespaced: false, name: NameRule::Subdomain };
    let mut errors = object_meta::validate(meta, rules, &path);
    let (name, generate_name) = (object_meta::text(meta, "name"), object_meta::text(meta, "generateName"));
    let expected = format!("{}.{}", text(spec.names, "plural"), text(spec.source, "group"));
    // Reported after other errors of the name; names come first.
    let mut before = vec![];
    for (key, value) in [("generateName", generate_name), ("name", name)] {
        let path = path.child(key);
        before.push(path.clone());
        if value.is_empty() || value == expected {
            continue;
        }
        let after =
            errors.iter().rposition(|error| before.contains(&error.field)).map_or(0, |index| index + 1);
        errors
            .insert(after, FieldError::invalid(&path, value, r#"must be spec.names.plural+"."+spec.group"#));
    }
    errors
}

fn update_metadata(definition: &Value, old: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("metadata");
    object_meta::validate_update(object_meta::of(definition), object_meta::of(old), &path)
}

fn validate_spec(spec: &Spec<'_>, options: &Options) -> Vec<FieldError> {
    let path = spec::path();
    let mut errors: Vec<_> = group(spec, &path.child("group")).into_iter().collect();
    errors.extend(scope(spec, &path.child("scope")));
    let options = options.with_requirements_of(spec);
    errors.extend(schema::validate_presence(spec, &options, &path));
    let mut validator = schema::SchemaValidator::new(&options);
    errors.extend(versions::validate(spec, &mut validator, &path));
    let names_path = path.child("names");
    errors.extend(names::required(spec.names, &names_path));
    errors.extend(names::validate(spec.names, &names_path));
    errors.extend(validator.validate(
        spec.validation,
        spec.version(),
        versions::any_has_status(spec),
        &path.child("validation"),
    ));
    errors.extend(subresources::validate(spec.subresources, &path.child("subresources")));
    errors.extend(subresources::validate_columns(spec.columns, &path.child("additionalPrinterColumns")));
    errors.extend(subresources::validate_shared_selectable(spec, &options, &path));
    let conversion = spec.source.get("conversion").unwrap_or(&Value::Null);
    if spec.preserves_unknown_fields() && !conversion.is_null() && text(conversion, "strategy") != "None" {
        let path = path.child("conversion").child("strategy");
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid(&path, text(conversion, "strategy"), detail));
    }
    errors.extend(conversion::validate(conversion, options.conversion, &path.child("conversion")));
    errors
}

fn group(spec: &Spec<'_>, path: &FieldPath) -> Option<FieldError> {
    let group = text(spec.source, "group");
    let problems = dns1123_subdomain(group);
    if group.is_empty() {
        Some(FieldError::required(path, ""))
    } else if !problems.is_empty() {
        Some(FieldError::invalid(path, group, problems.join(",")))
    } else if !group.contains('.') {
        Some(FieldError::invalid(path, group, "should be a domain with at least one dot"))
    } else {
        None
    }
}

fn scope(spec: &Spec<'_>, path: &FieldPath) -> Option<FieldError> {
    match text(spec.source, "scope") {
        "Cluster" | "Namespaced" => None,
        "" => Some(FieldError::required(path, "")),
        other => Some(FieldError::not_supported(path, other, &["Cluster", "Namespaced"])),
    }
}

/// Validates the status.
fn validate_status_and_approval(definition: &Value, old: Option<&Value>, spec: &Spec<'_>) -> Vec<FieldError> {
    let mut errors = validate_accepted_names(definition);
    errors.extend(stored_versions(definition, spec));
    errors.extend(api_approval::validate(definition, old));
    let preserved = old.is_some_and(|old| Spec::of(old).preserves_unknown_fields());
    if !preserved && spec.preserves_unknown_fields() {
        let path = spec::path().child("preserveUnknownFields");
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(&path, true, detail));
    }
    errors
}

fn validate_accepted_names(definition: &Value) -> Vec<FieldError> {
    let accepted = definition.get("status").and_then(|status| status.get("acceptedNames"));
    let path = FieldPath::root("status").child("acceptedNames");
    accepted.map(|accepted| names::validate(accepted, &path)).unwrap_or_default()
}

fn stored_versions(definition: &Value, spec: &Spec<'_>) -> Vec<FieldError> {
    let status = definition.get("status").unwrap_or(&Value::Null);
    let path = FieldPath::root("status").child("storedVersions");
    let stored: Vec<_> = strings(status, "storedVersions").collect();
    if stored.is_empty() {
        let written = status.get("storedVersions").cloned().unwrap_or_default();
        return vec![FieldError::invalid(&path, written, "must have at least one stored version")];
    }
    let mut errors = Vec::new();
    for version in spec.versions.iter().filter(|version| version.storage && !stored.contains(&version.name)) {
        let detail = format!("must have the storage version {}", version.name);
        errors.push(FieldError::invalid(&path, stored.clone(), detail));
    }
    for (index, name) in stored.iter().enumerate() {
        // Of equal names only the last is reported.
        let repeated = stored[index + 1..].contains(name);
        if repeated || spec.versions.iter().any(|version| version.name == *name) {
            continue;
        }
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        errors.push(FieldError::invalid(&path.index(index), *name, detail));
    }
    errors
}
