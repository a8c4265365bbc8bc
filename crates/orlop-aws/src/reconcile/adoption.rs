//! Adoption of resources that exist.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    client::{Failure, Result},
    kind::{Descriptor, Object, set},
};

/// The way that an object comes by its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Take the resource, and its fields into the spec.
    Adopt,
    /// Take the resource if there is one, with the spec as it is.
    AdoptOrCreate,
}

/// Reads the policy.
pub(super) fn policy(text: &str) -> Result<Policy> {
    match text {
        "adopt" => Ok(Policy::Adopt),
        "adopt-or-create" => Ok(Policy::AdoptOrCreate),
        other => Err(Failure::Terminal(format!(
            "unrecognized adoption policy {other}. Supported policies are \"adopt\" and \"adopt-or-create\""
        ))),
    }
}

/// Fills the object with the keys of the `adoption-fields` annotation.
pub(super) fn populate(
    descriptor: &Descriptor,
    policy: Policy,
    fields: Option<&str>,
    object: &mut Object,
) -> Result<()> {
    let parsed = match fields {
        None if policy == Policy::AdoptOrCreate => return Ok(()),
        None => Err("unexpected end of JSON input".to_owned()),
        Some(text) => {
            serde_json::from_str::<BTreeMap<String, String>>(text).map_err(|error| error.to_string())
        }
    };
    let given = parsed
        .map_err(|cause| Failure::Terminal(format!("unmarshalling adoption-fields annotation: {cause}")))?;
    for (key, path) in descriptor.adoption {
        let (key, optional) = match key.strip_suffix('?') {
            Some(key) => (key, true),
            None => (*key, false),
        };
        let Some(value) = given.get(key) else {
            if optional || policy == Policy::AdoptOrCreate {
                continue;
            }
            return Err(Failure::Terminal(format!(
                "Error populating adoption fields: required field missing: {key}"
            )));
        };
        match path.split_once('.') {
            Some(("status", path)) => set(&mut object.status, path, json!(value)),
            // The user's spec stands if the resource may have to be created.
            Some(("spec", path)) if policy == Policy::Adopt || object.spec(path).is_none() => {
                set(&mut object.spec, path, json!(value));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns identifying fields of a spec.
pub(super) fn identity(descriptor: &Descriptor, spec: &Value) -> Value {
    let fields =
        descriptor.identity.iter().filter_map(|field| Some(((*field).to_owned(), spec.get(*field)?.clone())));
    Value::Object(fields.collect())
}

/// Returns the first identifying field that is no longer what it was, with its old value.
pub(super) fn changed_identity(
    descriptor: &Descriptor,
    known: &Value,
    spec: &Value,
) -> Option<(String, String)> {
    descriptor.identity.iter().find_map(|field| {
        let old = known.get(*field)?;
        // A field that is left out now keeps its value.
        let new = spec.get(*field)?;
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let same = old == new
            || (*field == "name" && text(old).trim_end_matches('.') == text(new).trim_end_matches('.'));
        (!same).then(|| ((*field).to_owned(), text(old)))
    })
}
