//! Strategy of custom resources, as their definition says.

use std::sync::Arc;

use orlop_api::{field_error::FieldError, time::Time};
use orlop_crd::{Scale, Version};
use serde_json::Value;

use crate::{
    registry::Strategy,
    table::{Column, Columns},
};

/// Strategy of one version of a custom kind.
#[derive(Debug)]
pub(super) struct CustomObject {
    version: Arc<Version>,
}

impl CustomObject {
    pub(super) fn new(version: Arc<Version>) -> Self {
        Self { version }
    }
}

impl Strategy for CustomObject {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        self.version.validate_create(object).errors
    }

    fn validate_replacement(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        match subresource {
            "status" => self.version.validate_status_update(object, old).errors,
            _ => self.version.validate_update(object, old).errors,
        }
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        orlop_crd::object_warnings(object, None)
    }

    fn warnings_on_update(&self, object: &Value, old: &Value) -> Vec<String> {
        orlop_crd::object_warnings(object, Some(old))
    }

    fn deprecation_warning(&self) -> Option<String> {
        self.version.warning()
    }

    fn published_schema(&self) -> Option<Value> {
        Some(self.version.open_api_schema())
    }

    fn selectable_field_paths(&self) -> Vec<String> {
        self.version.selectable().names().map(|name| format!(".{name}")).collect()
    }

    fn scale(&self) -> Option<&Scale> {
        self.version.scale()
    }

    fn field_value(&self, object: &Value, path: &str) -> String {
        self.version.selectable().value(path, object).unwrap_or_default()
    }
}

impl Columns for CustomObject {
    fn definitions(&self) -> Vec<Column> {
        self.version.columns().columns().to_vec()
    }

    fn cells(&self, object: &Value, now: Time) -> Vec<Value> {
        self.version.columns().cells(object, now)
    }

    fn show_content_only(&self) -> bool {
        self.version.columns().show_content_only()
    }
}
