//! ResourceClaim, and the strategy it shares with ResourceClaimTemplate.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::{claim_status, device_claim::validate_devices};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{is_terminating, list, present, text},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::{RequestContext, Strategy},
    update_scope::STATUS_WITHOUT_METADATA,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, ..StrategyFlags::BUILTIN },
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    strategy: &ResourceClaim { template: false },
    ..BuiltinKind::new("resource.k8s.io", "resourceclaims")
};

/// Strategy of ResourceClaim and ResourceClaimTemplate.
pub(crate) struct ResourceClaim {
    pub(crate) template: bool,
}

impl Strategy for ResourceClaim {
    fn set_defaults(&self, object: &mut Value) {
        let Some(devices) = defaulting::object_at_mut(object, self.devices()) else { return };
        for request in defaulting::items_mut(devices, "requests") {
            defaulting::object_mut(request, "exactly").into_iter().for_each(set_count_defaults);
            defaulting::items_mut(request, "firstAvailable").for_each(set_count_defaults);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _: &RequestContext<'_>) {
        self.remove_disabled(object);
    }

    fn prepare_for_update(&self, object: &mut Value, _: &Value, _: &RequestContext<'_>) {
        self.remove_disabled(object);
    }

    fn prepare_for_subresource_update(
        &self,
        _: &str,
        object: &mut Value,
        old: &Value,
        _: &RequestContext<'_>,
    ) {
        claim_status::prepare(object, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let none = Value::Null;
        let mut path = FieldPath::root("spec");
        let mut spec = object.get("spec").unwrap_or(&none);
        if self.template {
            path = path.child("spec");
            spec = spec.get("spec").unwrap_or(&none);
        }
        validate_devices(spec.get("devices").unwrap_or(&none), &path.child("devices"))
    }

    /// The spec is immutable, and not validated again.
    fn validate_replacement(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        match subresource {
            "" => {
                validation::validate_immutable(object, old, "spec", &FieldPath::nil()).into_iter().collect()
            }
            _ => claim_status::validate(object, old),
        }
    }
}

impl ResourceClaim {
    /// JSON pointer of the devices that are claimed.
    fn devices(&self) -> &'static str {
        if self.template { "/spec/spec/devices" } else { "/spec/devices" }
    }

    /// Removes fields of features that are off by default in Kubernetes.
    fn remove_disabled(&self, object: &mut Value) {
        let Some(devices) = defaulting::object_at_mut(object, self.devices()) else { return };
        let remove = |request: &mut Value| {
            request.as_object_mut().and_then(|request| request.remove("derivedAttributes"));
        };
        for request in defaulting::items_mut(devices, "requests") {
            defaulting::object_mut(request, "exactly").into_iter().for_each(remove);
            defaulting::items_mut(request, "firstAvailable").for_each(remove);
        }
    }
}

/// Sets the defaults of a request: exactly one device.
fn set_count_defaults(request: &mut Value) {
    defaulting::set_if_zero(request, "allocationMode", "ExactCount");
    if text(request, "/allocationMode") == "ExactCount" {
        defaulting::set_if_zero(request, "count", 1);
    }
}

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("State"), ColumnDefinition::AGE],
    cells: |object, now| vec![name(object), state_text(object).into(), age(object, now)],
};

fn state_text(claim: &Value) -> String {
    let deleted = is_terminating(claim);
    let allocated = present(claim, "/status/allocation").is_some();
    let states = [
        ("deleted", deleted),
        ("pending", !allocated && !deleted),
        ("allocated", allocated),
        ("reserved", allocated && !list(claim, "/status/reservedFor").is_empty()),
    ];
    states.iter().filter(|(_, holds)| *holds).map(|(state, _)| *state).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::printer::tests::row;

    #[test]
    fn row_shows_the_claim_state() {
        for (claim, expected) in [
            (json!({}), "pending"),
            (json!({"metadata": {"deletionTimestamp": "x"}}), "deleted"),
            (json!({"status": {"allocation": {}, "reservedFor": [{}]}}), "allocated,reserved"),
            (
                json!({"metadata": {"deletionTimestamp": "x"}, "status": {"allocation": {}}}),
                "deleted,allocated",
            ),
        ] {
            assert_eq!(row(&COLUMNS, &claim)[1], expected);
        }
    }
}
