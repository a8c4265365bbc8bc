//! Late initialization: fields of `spec` that the user left out and AWS has defaulted.
//!
//! They are applied server-side under a manager of their own and without force, so that a field that another manager
//! sets is never overwritten, and tools that apply the rest of the object do not fight over them.

use serde_json::{Map, Value, json};

use crate::{
    client::Result,
    cluster::{Cluster, Resource, text},
    kind::{Descriptor, Observed, at},
    objects::place,
};

/// Manager of the late-initialized fields.
const MANAGER: &str = "orlop-aws-late-initialize";

/// Outcome of a late initialization.
pub(super) enum Late {
    /// All fields are there. The object, if it was written.
    Complete(Option<Value>),
    /// AWS has not defaulted a field yet, or another manager set it meanwhile.
    Incomplete,
}

/// Fills in the empty fields of an object.
pub(super) async fn initialize(
    cluster: &Cluster,
    resource: &Resource,
    descriptor: &Descriptor,
    object: &Value,
    observed: &Observed,
) -> Result<Late> {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let (mut fields, mut written, mut complete) = (Map::new(), false, true);
    for field in descriptor.late {
        let (field, optional) = match field.strip_suffix('?') {
            Some(field) => (field, true),
            None => (*field, false),
        };
        let value = match (spec.get(field), at(&observed.spec, field)) {
            // What an earlier pass applied would be removed by leaving it out.
            (Some(own), _) => owns(object, field).then_some(own),
            (None, Some(default)) => {
                written = true;
                Some(default)
            }
            (None, None) => {
                complete &= optional;
                None
            }
        };
        fields.extend(value.map(|value| (field.to_owned(), value.clone())));
    }
    let mut new = None;
    if written {
        let (namespace, name) = place(object);
        // The UID, so that an object that is gone is not created.
        let applied = json!({"apiVersion": resource.api_version(), "kind": resource.kind, "spec": fields,
            "metadata": {"name": name, "namespace": namespace, "uid": text(object, "/metadata/uid")}});
        match cluster.apply_unforced(resource, (namespace, name), &applied, MANAGER).await {
            Ok(object) => new = Some(object),
            Err(orlop_client::Error::Api(status)) if status.code == 409 => return Ok(Late::Incomplete),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(if complete { Late::Complete(new) } else { Late::Incomplete })
}

/// True if a field of `spec` is late-initialized.
fn owns(object: &Value, field: &str) -> bool {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    let own = entries.filter(|entry| entry["manager"] == MANAGER && entry["operation"] == "Apply");
    own.into_iter().any(|entry| entry["fieldsV1"]["f:spec"].get(format!("f:{field}")).is_some())
}
