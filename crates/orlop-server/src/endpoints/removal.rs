//! Removal of objects that nothing holds: the end of a delete, and of the update that drops the last finalizer.

use orlop_api::{object_meta, status::Status};
use orlop_store::Txn;
use serde_json::Value;

use super::{Request, preconditions, written::Written};
use crate::{
    object::{is_terminating, metadata_mut},
    registry::{Found, Kind},
};

/// Returns true if finalizers hold an object.
pub(super) fn has_finalizers(object: &Value) -> bool {
    object_meta::of(object).get("finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

/// Returns true if a terminating object has nothing left to wait for.
pub(super) fn is_released(kind: &Kind, object: &Value) -> bool {
    let meta = object_meta::of(object);
    let grace = meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    is_terminating(object)
        && grace == 0
        && !has_finalizers(object)
        && !kind.strategy.has_pending_finalization(object)
}

/// Removes an object if it is still the version that was read. The result has the revision of the deletion.
pub(super) async fn remove(
    request: &Request,
    object: &Value,
    found: &Found,
) -> Result<Option<Written>, Status> {
    let meta = object_meta::of(object);
    let key = request.cluster.objects.key(
        &request.kind,
        object_meta::text(meta, "namespace"),
        object_meta::text(meta, "name"),
    );
    let mut txn = Txn::remove(key, found.revision);
    txn.then.extend(preconditions::release(request, object));
    let result = request.cluster.commit(&request.kind, txn).await?;
    Ok(result.succeeded.then(|| {
        let mut object = object.clone();
        metadata_mut(&mut object).insert("resourceVersion".into(), result.revision.to_string().into());
        Written::Object(object)
    }))
}
