//! What the cluster hands out once: addresses and ports of services.

use orlop_api::status::Status;
use serde_json::Value;

use crate::verbs::Request;

/// Gives an object what it is to have of the cluster's own. `old` is absent on create.
pub(crate) async fn allocate(
    _request: &Request,
    _object: &mut Value,
    _old: Option<&Value>,
) -> Result<(), Status> {
    Ok(())
}

/// Takes back what a removed object had.
pub(crate) async fn release(_request: &Request, _object: &Value) {}
