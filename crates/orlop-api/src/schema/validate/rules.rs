//! Interaction of schema errors with CEL rules.

use crate::field_error::{FieldError, FieldErrorKind, FieldPath};
use serde_json::Value;

/// Returns whether schema errors block CEL rules, which could fail on the invalid parts.
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

/// Returns the error that reports skipped CEL rules.
pub fn rules_skipped_error() -> FieldError {
    FieldError::invalid(
        &FieldPath::nil(),
        Value::Null,
        "some validation rules were not checked because the object was invalid; \
         correct the existing errors to complete validation",
    )
}
