//! Admission: who else has a say in a write. Plugins, policies and webhooks are one interface.

use std::fmt;

use async_trait::async_trait;
use orlop_api::{managed_fields::Managed, status::Status};
use serde_json::Value;

use crate::verbs::{
    Request,
    incoming::{self, Form},
    prepare,
};

/// Changes or refuses what clients write.
#[async_trait]
pub trait Admission: fmt::Debug + Send + Sync {
    /// Changes an object before it is validated. `old` is absent on create. Who owns which fields has been
    /// written down by then: what admission changes is owned by nobody.
    async fn mutate(
        &self,
        _request: &Request,
        _object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Refuses an object as it would be stored, or its deletion.
    async fn validate(
        &self,
        _request: &Request,
        _object: &Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        Ok(())
    }
}

/// Lets everyone change an object in turn, and makes good what that did to its form.
pub(crate) async fn mutate(request: &Request, object: &mut Value, old: Option<&Value>) -> Result<(), Status> {
    let all = request.cluster.admission();
    if all.is_empty() {
        return Ok(());
    }
    let owned_before = object.pointer("/metadata/managedFields").cloned();
    for admission in all {
        admission.mutate(request, object, old).await?;
    }
    if let Err(why) = Managed::of(object) {
        let metadata = prepare::meta(object);
        match owned_before {
            Some(before) => metadata.insert("managedFields".into(), before),
            None => metadata.remove("managedFields"),
        };
        request.warn(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an \
             outdated mutating admission controller; please fix your requests: {why}"
        ));
    }
    incoming::prune_again(request, Form::of(request, &request.kind.gvk)?, object)?;
    prepare::deduplicate_owners(request, object, " after mutating admission happens");
    prepare::default(&request.kind, object);
    Ok(())
}

/// Lets everyone refuse an object.
pub(crate) async fn validate(request: &Request, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    for admission in request.cluster.admission() {
        admission.validate(request, object, old).await?;
    }
    Ok(())
}
