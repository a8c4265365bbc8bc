//! AlwaysDeny: refuses every write.

use async_trait::async_trait;
use orlop_api::status::Status;
use serde_json::Value;

use crate::{Admission, AdmissionRequest};

const WHY: &str = "admission control is denying all modifications";

/// Refuses every write.
#[derive(Debug)]
pub(super) struct AlwaysDeny;

#[async_trait]
impl Admission for AlwaysDeny {
    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let object: &Value = if object.is_null() { old.unwrap_or(object) } else { object };
        Err(request.forbidden(object, WHY))
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        Err(request.forbidden(object.or(old).unwrap_or(&Value::Null), WHY))
    }
}
