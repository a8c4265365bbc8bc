//! When rules (CEL) run beside the checks of a schema: the evaluator is somebody else's.

use crate::field_error::{FieldError, FieldErrorKind, FieldPath};
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
