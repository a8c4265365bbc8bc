//! Validation of a definition's schemas: presence, structure, defaults and CEL rules.

use super::options::Options;
use super::spec::{Spec, open_api};
use crate::rules::validate::{StoredExpressions, validate_rules};
use crate::rules::{OBJECT_COST_MAX, Rules};
use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::schema::from_openapi;
use orlop_api::schema::structural::{self, DefaultValue, ValidationBudget};
use orlop_api::schema::unstructured::flag;
use serde_json::Value;

/// Validates that required schemas are present: everywhere, or at least in served versions that prune.
pub(super) fn validate_presence(spec: &Spec<'_>, options: &Options, path: &FieldPath) -> Vec<FieldError> {
    if open_api(spec.validation).is_some() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    for (index, version) in spec.versions.iter().enumerate() {
        if open_api(version.schema).is_some() {
            continue;
        }
        let path = path.child("versions").index(index).child("schema").child("openAPIV3Schema");
        if options.require_schema {
            errors.push(FieldError::required(&path, ""));
        } else if !spec.preserves_unknown_fields() && flag(version.source, "served") {
            errors.push(FieldError::required(&path, "because otherwise all fields are pruned"));
        }
    }
    let defaults = |node: &Value| node.get("default").is_some_and(|default| !default.is_null());
    if spec.preserves_unknown_fields() && spec.schemas().any(|schema| super::walk::any(schema, defaults)) {
        let path = path.child("preserveUnknownFields");
        errors.push(FieldError::invalid(&path, true, "must be false in order to use defaults in the schema"));
    }
    errors
}

/// Validates the schemas of one definition.
pub(super) struct SchemaValidator<'o> {
    pub(super) options: &'o Options,
    /// Shared by all versions.
    patterns: ValidationBudget,
}

impl<'o> SchemaValidator<'o> {
    pub(super) fn new(options: &'o Options) -> Self {
        Self { options, patterns: ValidationBudget::default() }
    }

    /// Validates the `schema` of a version, or the shared `validation`.
    pub(super) fn validate(
        &mut self,
        validation: &Value,
        version: &str,
        status_subresource: bool,
        path: &FieldPath,
    ) -> Vec<FieldError> {
        let Some(schema) = open_api(validation) else { return Vec::new() };
        let path = path.child("openAPIV3Schema");
        let mut errors = structural::validate_root(schema, &path, status_subresource);
        let mut conversion_error = None;
        let mut sound = false;
        if self.options.require_structural {
            conversion_error = structural::conversion_error(schema);
            if conversion_error.is_none() {
                let mut found = structural::validate_structural_schema(schema, &path, &mut self.patterns);
                if found.is_empty() {
                    let pruned = self.options.require_pruned_defaults;
                    let mut budget = OBJECT_COST_MAX;
                    found = structural::validate_defaults(schema, &path, pruned, &mut |default| {
                        default_rules(default, &mut budget)
                    });
                }
                sound = found.is_empty();
                errors.extend(found);
            }
        }
        let keywords = structural::validate_keywords(schema, &path, self.options.validation);
        let rules = if sound {
            let expressions = StoredExpressions {
                stored_rules: &self.options.stored_rules,
                stored_messages: &self.options.stored_messages,
                cost_was_accepted: self.options.unchanged.contains(version),
            };
            validate_rules(schema, &path, &expressions, &keywords)
        } else {
            crate::rules::validate::RuleErrors::default()
        };
        errors.extend(keywords);
        errors.extend(rules.errors);
        if let Some(problem) = conversion_error.filter(|_| errors.is_empty()) {
            errors.push(FieldError::invalid(&path, "", problem));
        }
        errors.extend(rules.total);
        errors
    }
}

/// Evaluates CEL rules on a default, as an update and as a create.
fn default_rules(default: &DefaultValue<'_>, budget: &mut u64) -> Vec<FieldError> {
    let rules = Rules::of_node(default.schema, default.is_resource);
    if rules.is_empty() || *budget == 0 {
        return Vec::new();
    }
    let schema = from_openapi(default.schema);
    let (mut changed, mut fresh) = (*budget, *budget);
    let mut errors = rules.evaluate(&schema, default.value, Some(default.value), &mut changed).errors;
    if errors.is_empty() {
        errors = rules.evaluate(&schema, default.value, None, &mut fresh).errors;
    }
    *budget = changed.min(fresh);
    let below = |mut error: FieldError| {
        let inner = error.field.as_str();
        error.field = match inner {
            "" => default.path.clone(),
            _ if inner.starts_with('[') => FieldPath::root(format!("{}{inner}", default.path)),
            _ => default.path.child(inner),
        };
        error
    };
    errors.into_iter().map(below).collect()
}
