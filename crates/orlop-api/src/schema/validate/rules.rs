//! Where rules run: the evaluator is somebody else's, the walk is here.

use super::{corresponding_entry, corresponding_item};
use crate::field_error::{FieldError, FieldErrorKind, FieldPath};
use crate::schema::{Additional, Rule, Schema};
use serde_json::Value;

/// Whether these errors keep rules from running, because a rule could fail on what is broken.
pub fn blocks_rules(errors: &[FieldError]) -> bool {
    let blocking = |error: &FieldError| {
        matches!(
            error.kind,
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    };
    errors.iter().any(blocking)
}

/// What is said beside errors that kept the rules from running.
pub fn rules_not_checked() -> FieldError {
    FieldError::invalid(
        &FieldPath::nil(),
        Value::Null,
        "some validation rules were not checked because the object was invalid; \
         correct the existing errors to complete validation",
    )
}

/// A node of an object whose schema has rules.
#[derive(Debug)]
pub struct RuledNode<'a> {
    pub path: FieldPath,
    pub value: &'a Value,
    /// The value it replaces, where one corresponds.
    pub old: Option<&'a Value>,
    pub schema: &'a Schema,
    pub rules: &'a [Rule],
}

/// The one place where `x-kubernetes-validations` run: calls `run` for every node with rules, parents first.
pub fn visit_rules<'a>(
    value: &'a Value,
    old: Option<&'a Value>,
    schema: &'a Schema,
    run: &mut dyn FnMut(RuledNode<'a>),
) {
    fn walk<'a>(
        path: FieldPath,
        value: &'a Value,
        old: Option<&'a Value>,
        schema: &'a Schema,
        run: &mut dyn FnMut(RuledNode<'a>),
    ) {
        if !schema.rules.is_empty() {
            run(RuledNode { path: path.clone(), value, old, schema, rules: &schema.rules });
        }
        match value {
            Value::Object(map) => {
                for (key, item) in map {
                    let old = corresponding_entry(old, key, schema);
                    if let Some(field) = schema.field(key) {
                        walk(path.child(key), item, old, field.schema(), run);
                    } else if let Additional::Of(inner) = &schema.additional {
                        walk(path.key(key), item, old, inner.get(), run);
                    }
                }
            }
            Value::Array(items) => {
                let Some(inner) = schema.items() else { return };
                for (index, item) in items.iter().enumerate() {
                    walk(path.index(index), item, corresponding_item(old, item, schema), inner, run);
                }
            }
            _ => {}
        }
    }
    walk(FieldPath::nil(), value, old, schema, run);
}
