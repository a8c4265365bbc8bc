//! Field errors: path, type, value and detail.
//!
//! ```
//! use orlop_api::field_error::{FieldError, FieldPath};
//! let path = FieldPath::root("spec").child("replicas");
//! let error = FieldError::invalid(&path, -1, "must be greater than or equal to 0");
//! assert_eq!(error.to_string(), "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
//! ```

use crate::go_text;
use serde_json::Value;
use std::fmt;

/// Field path, such as `spec.containers[0].env[name]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(String);

impl FieldPath {
    /// Returns the path of the whole object, printed `<nil>`.
    pub fn nil() -> Self {
        Self::default()
    }

    pub fn root(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    pub fn child(&self, name: &str) -> Self {
        if self.is_nil() { Self(name.to_owned()) } else { self.extended([".", name, ""]) }
    }

    pub fn index(&self, index: usize) -> Self {
        self.key(&index.to_string())
    }

    pub fn key(&self, key: &str) -> Self {
        self.extended(["[", key, "]"])
    }

    /// Returns the path with more text. Validation extends paths whether or not there is an error, and the machinery of
    /// `format!` took most of its time.
    fn extended(&self, parts: [&str; 3]) -> Self {
        let length = parts.iter().fold(self.0.len(), |length, part| length + part.len());
        let mut path = String::with_capacity(length);
        path.push_str(&self.0);
        parts.iter().for_each(|part| path.push_str(part));
        Self(path)
    }

    pub fn is_nil(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the path; empty instead of `<nil>`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// Type of a field error. The name is a Status cause's `reason`; the label is its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooShort,
    TooMany,
    TooFew,
    Internal,
    TypeInvalid,
}

impl FieldErrorKind {
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooShort => "FieldValueTooShort",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooShort => "Too short",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
        }
    }

    fn prints_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal)
    }
}

/// A validation error of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    pub field: FieldPath,
    /// The invalid value as printed; `None` if omitted.
    pub value: Option<String>,
    pub detail: String,
    /// True for an error that Kubernetes finds declaratively, from tags of its types: those come last.
    declarative: bool,
}

impl FieldError {
    fn new(
        kind: FieldErrorKind,
        field: &FieldPath,
        value: Option<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, field: field.clone(), value, detail: detail.into(), declarative: false }
    }

    pub fn required(field: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, None, detail)
    }

    pub fn invalid(field: &FieldPath, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(printed(&value.into())), detail)
    }

    /// Creates an Invalid error with a formatted value, such as a Go struct.
    pub fn invalid_printed(field: &FieldPath, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(value.into()), detail)
    }

    pub fn type_invalid(field: &FieldPath, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, Some(printed(&value.into())), detail)
    }

    pub fn not_supported(field: &FieldPath, value: impl Into<Value>, supported: &[impl AsRef<str>]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<_> = supported.iter().map(|name| go_text::quote(name.as_ref())).collect();
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(FieldErrorKind::NotSupported, field, Some(printed(&value.into())), detail)
    }

    pub fn not_found(field: &FieldPath, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, Some(printed(&value.into())), "")
    }

    pub fn duplicate(field: &FieldPath, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(printed(&value.into())), "")
    }

    pub fn forbidden(field: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    pub fn too_long(field: &FieldPath, length_max: usize) -> Self {
        let unit = if length_max == 1 { "byte" } else { "bytes" };
        Self::new(FieldErrorKind::TooLong, field, None, format!("may not be more than {length_max} {unit}"))
    }

    /// Creates a Too long error of a value whose characters are counted.
    pub fn too_many_characters(field: &FieldPath, length_max: usize) -> Self {
        let unit = if length_max == 1 { "character" } else { "characters" };
        Self::new(FieldErrorKind::TooLong, field, None, format!("may not be more than {length_max} {unit}"))
    }

    pub fn too_short(field: &FieldPath, length_min: usize) -> Self {
        let unit = if length_min == 1 { "character" } else { "characters" };
        Self::new(FieldErrorKind::TooShort, field, None, format!("must be at least {length_min} {unit}"))
    }

    pub fn too_many(field: &FieldPath, count: usize, count_max: usize) -> Self {
        let unit = if count_max == 1 { "item" } else { "items" };
        Self::new(
            FieldErrorKind::TooMany,
            field,
            Some(count.to_string()),
            format!("must have at most {count_max} {unit}"),
        )
    }

    pub fn internal(field: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, field, None, detail)
    }

    /// Marks an error that Kubernetes finds declaratively.
    #[must_use]
    pub fn declaratively(self) -> Self {
        Self { declarative: true, ..self }
    }

    /// Returns errors in the order in which Kubernetes reports them: those that it finds declaratively come last.
    pub fn in_order(errors: &[Self]) -> Vec<&Self> {
        let (last, first): (Vec<&Self>, Vec<&Self>) = errors.iter().partition(|error| error.declarative);
        first.into_iter().chain(last).collect()
    }

    /// Puts `prefix` before the detail.
    #[must_use]
    pub fn with_detail_prefix(self, prefix: &str) -> Self {
        Self { detail: format!("{prefix}{}", self.detail), ..self }
    }

    /// Omits the value from the text.
    #[must_use]
    pub fn without_value(self) -> Self {
        Self { value: None, ..self }
    }

    /// Returns the text after the path: label, value, detail.
    pub fn body(&self) -> String {
        let mut body = self.kind.label().to_owned();
        if let Some(value) = self.value.as_deref().filter(|_| self.kind.prints_value()) {
            body.push_str(": ");
            body.push_str(value);
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

/// Formats a value: strings quoted, numbers and booleans bare, others as JSON.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => go_text::quote(text),
        Value::Number(number) => go_text::number(number),
        other => go_text::json(other),
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// Joins messages as Go's aggregate errors do: a single one as is, else `[a, b]` without duplicates.
pub fn aggregate<T: ToString>(errors: &[T]) -> String {
    let mut messages: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let message = error.to_string();
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    match messages.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_error_type_prints_label_value_and_detail() {
        let path = FieldPath::root("spec").child("list").index(2).child("map").key("k");
        assert_eq!(path.to_string(), "spec.list[2].map[k]");
        for (error, expected) in [
            (FieldError::required(&path, ""), "Required value"),
            (FieldError::required(&path, "why"), "Required value: why"),
            (FieldError::invalid(&path, "a\"b", "why"), r#"Invalid value: "a\"b": why"#),
            (FieldError::invalid(&path, json!({"a": [1]}), "why"), r#"Invalid value: {"a":[1]}: why"#),
            (FieldError::invalid(&path, 1.5, ""), "Invalid value: 1.5"),
            (FieldError::invalid(&path, Value::Null, "x"), "Invalid value: null: x"),
            (
                FieldError::not_supported(&path, "x", &["a", "b"]),
                r#"Unsupported value: "x": supported values: "a", "b""#,
            ),
            (FieldError::duplicate(&path, "x"), r#"Duplicate value: "x""#),
            (FieldError::forbidden(&path, "no"), "Forbidden: no"),
            (FieldError::too_long(&path, 5), "Too long: may not be more than 5 bytes"),
            (FieldError::too_long(&path, 1), "Too long: may not be more than 1 byte"),
            (FieldError::too_short(&path, 1), "Too short: must be at least 1 character"),
            (FieldError::too_many(&path, 7, 1), "Too many: 7: must have at most 1 item"),
            (FieldError::not_found(&path, 3), "Not found: 3"),
            (FieldError::internal(&path, "oops"), "Internal error: oops"),
        ] {
            assert_eq!(error.body(), expected);
        }
    }

    #[test]
    fn aggregate_removes_duplicates() {
        assert_eq!(aggregate(&["a"]), "a");
        assert_eq!(aggregate(&["a", "b", "a"]), "[a, b]");
        assert_eq!(aggregate(&["a", "a"]), "a");
    }
}
