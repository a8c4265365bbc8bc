//! Runs the admission plugins for a request.

use orlop_api::{managed_fields::ManagedFields, status::Status};
use serde_json::{Value, json};

use super::{
    Request,
    decoder::{self, BodySchema},
    prepare,
};
use crate::{
    admission::{AdmissionRequest, Operation},
    object::metadata_mut,
    request::Verb,
};

/// Runs the mutating plugins in order, then restores the invariants of the object's schema.
pub(super) async fn mutate(request: &Request, object: &mut Value, old: Option<&Value>) -> Result<(), Status> {
    let plugins = request.cluster.admission();
    if plugins.is_empty() {
        return Ok(());
    }
    let operation = if old.is_none() { Operation::Create } else { Operation::Update };
    let admission = admission_request(request, operation);
    let managed_before = object.pointer("/metadata/managedFields").cloned();
    for plugin in plugins {
        orlop_trace::in_span("mutating admission", Vec::new, plugin.mutate(&admission, object, old)).await?;
    }
    if let Err(why) = ManagedFields::of(object) {
        let metadata = metadata_mut(object);
        match managed_before {
            Some(before) => metadata.insert("managedFields".into(), before),
            None => metadata.remove("managedFields"),
        };
        request.warn(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an \
             outdated mutating admission controller; please fix your requests: {why}"
        ));
    }
    decoder::prune_again(request, BodySchema::of(request, &request.kind.gvk)?, object)?;
    prepare::deduplicate_owners(request, object, " after mutating admission happens");
    prepare::default(&request.kind, object);
    Ok(())
}

/// Runs the validating plugins in order. `object` is absent on delete, `old` on create.
pub(super) async fn validate(
    request: &Request,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let plugins = request.cluster.admission();
    if plugins.is_empty() {
        return Ok(());
    }
    let operation = match (object, old) {
        (None, _) => Operation::Delete,
        (Some(_), None) => Operation::Create,
        (Some(_), Some(_)) => Operation::Update,
    };
    let admission = admission_request(request, operation);
    for plugin in plugins {
        let validated = plugin.validate(&admission, object, old);
        orlop_trace::in_span("validating admission", Vec::new, validated).await?;
    }
    Ok(())
}

/// Runs the validating plugins for a connection, such as exec. The object is its options.
pub(super) async fn connect(request: &Request) -> Result<(), Status> {
    let plugins = request.cluster.admission();
    if plugins.is_empty() {
        return Ok(());
    }
    let subresource = request.attributes.subresource_name();
    let gvk = request.kind.subresource(subresource).map_or(&request.kind.gvk, |subresource| &subresource.gvk);
    let admission = AdmissionRequest { kind: gvk, ..admission_request(request, Operation::Connect) };
    let mut options = json!({"apiVersion": gvk.api_version(), "kind": gvk.kind});
    for (name, value) in request.query.iter() {
        options[name] = value.into();
    }
    for plugin in plugins {
        plugin.validate(&admission, Some(&options), None).await?;
    }
    Ok(())
}

fn admission_request(request: &Request, operation: Operation) -> AdmissionRequest<'_> {
    AdmissionRequest {
        operation,
        attributes: &request.attributes,
        kind: &request.kind.gvk,
        options: options(request, operation),
        dry_run: !request.query.text("dryRun").is_empty(),
        warnings: &request.warnings,
    }
}

/// Returns the options of a write as an object: those of a delete from its body, if it has one.
fn options(request: &Request, operation: Operation) -> Value {
    let kind = match (operation, &request.attributes.verb) {
        (Operation::Connect, _) => return Value::Null,
        (Operation::Create, _) => "CreateOptions",
        (Operation::Delete, _) => "DeleteOptions",
        (Operation::Update, Verb::Patch) => "PatchOptions",
        (Operation::Update, _) => "UpdateOptions",
    };
    let mut options = match operation {
        Operation::Delete => serde_json::from_slice(&request.body).unwrap_or_default(),
        _ => Value::Null,
    };
    if !options.is_object() {
        options = json!({});
        for name in ["fieldManager", "fieldValidation", "propagationPolicy"] {
            if let Some(value) = request.query.get(name) {
                options[name] = value.into();
            }
        }
    }
    options["apiVersion"] = "meta.k8s.io/v1".into();
    options["kind"] = kind.into();
    let dry_run: Vec<&str> = request.query.all("dryRun").collect();
    if !dry_run.is_empty() {
        options["dryRun"] = dry_run.into();
    }
    options
}
