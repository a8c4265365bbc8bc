//! Strategy: behaviour of a kind beyond its schema, after kube-apiserver's `registry/<group>/<kind>/strategy.go`.

use orlop_api::{field_error::FieldError, time::Time, user::UserInfo};
use orlop_crd::Scale;
use serde_json::Value;

/// Facts about a request that strategies may use. Strategies read no clock and know no connection.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    /// The requester.
    pub user: &'a UserInfo,
    /// Time at which the server handles the request.
    pub now: Time,
}

/// Per-kind hooks that the verbs call around a write. Every method has a default that does nothing.
///
/// Order on create: `set_defaults`, `prepare_for_create`, `validate`, `warnings_on_create`.
/// Order on update: `set_defaults`, `prepare_for_update` (and `prepare_for_subresource_update`),
/// `validate_replacement`, `warnings_on_update`.
pub trait Strategy: Send + Sync {
    /// Sets defaults that depend on other fields. Constant defaults are in the schema.
    fn set_defaults(&self, _object: &mut Value) {}

    /// Sets or clears server-owned fields of a new object.
    fn prepare_for_create(&self, _object: &mut Value, _context: &RequestContext<'_>) {}

    /// Sets or restores server-owned fields of an updated object.
    fn prepare_for_update(&self, _object: &mut Value, _old: &Value, _context: &RequestContext<'_>) {}

    /// Sets or restores server-owned fields of an object that is updated through a subresource.
    fn prepare_for_subresource_update(
        &self,
        _subresource: &str,
        _object: &mut Value,
        _old: &Value,
        _context: &RequestContext<'_>,
    ) {
    }

    /// Validates an object by itself.
    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Validates the transition from `old` to `object`.
    fn validate_update(&self, _object: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Validates the transition from `old` to `object` through a subresource.
    fn validate_subresource_update(
        &self,
        _subresource: &str,
        object: &Value,
        old: &Value,
    ) -> Vec<FieldError> {
        self.validate_update(object, old)
    }

    /// Validates an update as a whole: the object, then the transition. `subresource` is empty for the object
    /// itself.
    fn validate_replacement(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        let mut errors = self.validate(object);
        errors.extend(match subresource {
            "" => self.validate_update(object, old),
            subresource => self.validate_subresource_update(subresource, object, old),
        });
        errors
    }

    /// Returns warnings for the client that creates an object.
    fn warnings_on_create(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Returns warnings for the client that updates an object.
    fn warnings_on_update(&self, object: &Value, _old: &Value) -> Vec<String> {
        self.warnings_on_create(object)
    }

    /// Returns warnings for the client that deletes an object without naming a propagation policy.
    fn warnings_on_delete_without_propagation(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns whether a delete may set the propagation policy of `object`.
    fn accepts_propagation_policy(&self, _object: &Value) -> bool {
        true
    }

    /// Returns the grace period of a delete, given the requested one; `None` for kinds without graceful
    /// deletion.
    fn grace_period_seconds(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Sets or clears server-owned fields before a delete removes the object or marks it for deletion.
    fn prepare_for_delete(&self, _object: &mut Value, _context: &RequestContext<'_>) {}

    /// Adjusts an object after its deletionTimestamp was set.
    fn mark_terminating(&self, _object: &mut Value) {}

    /// Returns whether something besides `metadata.finalizers` delays the removal of a deleted object.
    fn has_pending_finalization(&self, _object: &Value) -> bool {
        false
    }

    /// Returns the OpenAPI schema as its author wrote it, where the kind keeps that.
    fn published_schema(&self) -> Option<Value> {
        None
    }

    /// Returns the paths of `x-kubernetes-selectable-fields` in OpenAPI.
    fn selectable_field_paths(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the field paths of the scale subresource; `None` for `spec.replicas` and `status.replicas`.
    fn scale(&self) -> Option<&Scale> {
        None
    }

    /// Returns the warning that every response of a deprecated version carries.
    fn deprecation_warning(&self) -> Option<String> {
        None
    }

    /// Returns the value of a selectable field; empty where it is absent.
    fn field_value(&self, object: &Value, path: &str) -> String {
        orlop_api::fields::field_text(object, path)
    }
}

/// Strategy of a kind that its schema describes completely.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultStrategy;

impl Strategy for DefaultStrategy {}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use super::*;

    static USER: LazyLock<UserInfo> = LazyLock::new(|| UserInfo::authenticated("jane", []));

    /// Returns the context of a request by `jane` at 2026-01-01T00:00:00Z.
    pub(crate) fn context() -> RequestContext<'static> {
        RequestContext { user: &USER, now: Time::from_unix(1_767_225_600) }
    }
}
