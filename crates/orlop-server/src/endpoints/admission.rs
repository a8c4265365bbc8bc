//! Runs the admission plugins for a request.

use orlop_api::{managed_fields::ManagedFields, status::Status};
use serde_json::Value;

use super::{
    Request,
    decoder::{self, Form},
    prepare,
};
use crate::{
    admission::{AdmissionRequest, Operation},
    object::metadata_mut,
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
        plugin.mutate(&admission, object, old).await?;
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
    decoder::prune_again(request, Form::of(request, &request.kind.gvk)?, object)?;
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
        plugin.validate(&admission, object, old).await?;
    }
    Ok(())
}

fn admission_request(request: &Request, operation: Operation) -> AdmissionRequest<'_> {
    AdmissionRequest {
        operation,
        user: &request.user,
        resource: &request.about,
        kind: &request.kind.gvk,
        options: &Value::Null,
        dry_run: !request.query.text("dryRun").is_empty(),
        warnings: &request.warnings,
    }
}
