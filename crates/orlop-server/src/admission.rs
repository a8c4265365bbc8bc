//! Admission: where plugins, policies and webhooks will change and refuse objects.
//!
//! Its two places in every write are here from the start. So far nothing but the server's own rules is
//! behind them.

use orlop_api::status::Status;
use serde_json::Value;

use crate::verbs::Request;

/// Lets admission change an object. `old` is absent on create.
pub(crate) fn mutate(_request: &Request, _object: &mut Value, _old: Option<&Value>) -> Result<(), Status> {
    Ok(())
}

/// Lets admission refuse an object as it will be stored, or its deletion.
pub(crate) fn validate(_request: &Request, _object: &Value, _old: Option<&Value>) -> Result<(), Status> {
    Ok(())
}
