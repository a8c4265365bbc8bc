//! Validation of objects, in Kubernetes' order.

use crate::rules::ValidationResult;
use crate::version::Version;
use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::names::NameRule;
use orlop_api::object_meta::{self, MetaRules};
use orlop_api::schema::unstructured::text;
use orlop_api::schema::{
    self, blocks_rules, rules_skipped_error, validate_embedded_resources, validate_list_types,
};
use serde_json::Value;

impl Version {
    /// Validates an object about to be created: defaulted, pruned, its name generated.
    pub fn validate_create(&self, object: &Value) -> ValidationResult {
        let errors = self.type_errors(object);
        if !errors.is_empty() {
            return ValidationResult { errors, warnings: Vec::new() };
        }
        let schema = self.schema();
        let rules = MetaRules { namespaced: self.namespaced, name: NameRule::Subdomain };
        let mut errors = object_meta::validate(object_meta::of(object), rules, &FieldPath::root("metadata"));
        errors.extend(schema::validate(object, schema));
        if let Some(scale) = self.scale() {
            errors.extend(scale.validate_spec(object));
            errors.extend(scale.validate_status(object));
        }
        errors.extend(validate_embedded_resources(object, schema));
        errors.extend(validate_list_types(object, schema, &FieldPath::nil()));
        self.with_rules(errors, object, None)
    }

    /// Validates an object that replaces `old`.
    pub fn validate_update(&self, object: &Value, old: &Value) -> ValidationResult {
        let errors = self.type_errors(object);
        if !errors.is_empty() {
            return ValidationResult { errors, warnings: Vec::new() };
        }
        let schema = self.schema();
        let mut errors = self.metadata_update_errors(object, old);
        errors.extend(schema::validate_update(object, old, schema));
        if let Some(scale) = self.scale() {
            errors.extend(scale.validate_spec(object));
            errors.extend(scale.validate_status(object));
        }
        errors.extend(validate_embedded_resources(object, schema));
        errors.extend(self.new_list_errors(object, old));
        self.with_rules(errors, object, Some(old))
    }

    /// Validates an object whose status replaces `old`'s.
    pub fn validate_status_update(&self, object: &Value, old: &Value) -> ValidationResult {
        let errors = self.type_errors(object);
        if !errors.is_empty() {
            return ValidationResult { errors, warnings: Vec::new() };
        }
        let mut errors = self.metadata_update_errors(object, old);
        if let (Some(status), Some(field)) = (object.get("status"), self.schema().field("status")) {
            let old = old.get("status").unwrap_or(&Value::Null);
            let found = schema::validate_update(status, old, field.schema());
            errors.extend(found.into_iter().map(below_status));
        }
        if let Some(scale) = self.scale() {
            errors.extend(scale.validate_status(object));
        }
        errors.extend(self.new_list_errors(object, old));
        self.with_rules(errors, object, Some(old))
    }

    fn type_errors(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (key, expected) in [("kind", self.kind.clone()), ("apiVersion", self.api_version())] {
            let found = text(object, key);
            if found != expected {
                errors.push(FieldError::invalid(&FieldPath::root(key), found, format!("must be {expected}")));
            }
        }
        errors
    }

    fn metadata_update_errors(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("metadata");
        object_meta::validate_update(object_meta::of(object), object_meta::of(old), &path)
    }

    /// Returns duplicate list items, unless the old object has some too.
    fn new_list_errors(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let errors = validate_list_types(object, self.schema(), &FieldPath::nil());
        let repeated =
            !errors.is_empty() && !validate_list_types(old, self.schema(), &FieldPath::nil()).is_empty();
        if repeated { Vec::new() } else { errors }
    }

    fn with_rules(
        &self,
        mut errors: Vec<FieldError>,
        object: &Value,
        old: Option<&Value>,
    ) -> ValidationResult {
        let rules = self.rules();
        if rules.is_empty() {
            return ValidationResult { errors, warnings: Vec::new() };
        }
        if blocks_rules(&errors) {
            errors.push(rules_skipped_error());
            return ValidationResult { errors, warnings: Vec::new() };
        }
        let found = rules.validate(self.schema(), object, old);
        errors.extend(found.errors);
        ValidationResult { errors, warnings: found.warnings }
    }
}

fn below_status(mut error: FieldError) -> FieldError {
    let status = FieldPath::root("status");
    error.field = if error.field.is_nil() { status } else { status.child(error.field.as_str()) };
    error
}
