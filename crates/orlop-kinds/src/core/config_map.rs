//! ConfigMap.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use crate::{
    BuiltinKind,
    accessors::{flag, map},
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind =
    BuiltinKind { columns: &COLUMNS, strategy: &ConfigMap, ..BuiltinKind::new("", "configmaps") };

/// Size limit of all values of a ConfigMap or Secret, in bytes.
pub(crate) const DATA_BYTES_MAX: usize = 1 << 20;
const IMMUTABLE_DATA: &str = "field is immutable when `immutable` is set";

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("Data"), ColumnDefinition::AGE],
    cells: |object, now| {
        let count = map(object, "/data").len() + map(object, "/binaryData").len();
        vec![name(object), count.into(), age(object, now)]
    },
};

pub(crate) struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (data, binary) = (map(object, "/data"), map(object, "/binaryData"));
        let mut errors = Vec::new();
        for key in data.keys() {
            let path = FieldPath::root("data").key(key);
            errors.extend(validation::invalid_for_each(&path, key.as_str(), names::config_map_key(key)));
            if binary.contains_key(key) {
                errors.push(FieldError::invalid(
                    &path,
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
        }
        errors.extend(validate_keys(binary, "binaryData"));
        let text_bytes: usize = data.values().map(|value| value.as_str().unwrap_or_default().len()).sum();
        if text_bytes + decoded_length(binary) > DATA_BYTES_MAX {
            // The error is about the whole object, whose path prints as `[]`.
            errors.push(FieldError::too_long(&FieldPath::root("[]"), DATA_BYTES_MAX));
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validate_immutable_data(object, old, &["data", "binaryData"])
    }
}

/// Validates the keys of a data map.
pub(crate) fn validate_keys(entries: &serde_json::Map<String, Value>, field: &str) -> Vec<FieldError> {
    let check = |key: &String| {
        validation::invalid_for_each(
            &FieldPath::root(field).key(key),
            key.as_str(),
            names::config_map_key(key),
        )
    };
    entries.keys().flat_map(check).collect()
}

/// Returns the total decoded length of base64 values, in bytes.
pub(crate) fn decoded_length(entries: &serde_json::Map<String, Value>) -> usize {
    let decoded = |value: &Value| {
        let encoded = value.as_str().unwrap_or_default();
        encoded.trim_end_matches('=').len() * 3 / 4
    };
    entries.values().map(decoded).sum()
}

/// Validates that an immutable object's data did not change.
pub(crate) fn validate_immutable_data(object: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    if !flag(old, "/immutable") {
        return Vec::new();
    }
    let mut errors = Vec::new();
    if !flag(object, "/immutable") {
        errors.push(FieldError::forbidden(&FieldPath::root("immutable"), IMMUTABLE_DATA));
    }
    for field in fields {
        let pointer = format!("/{field}");
        if map(object, &pointer) != map(old, &pointer) {
            errors.push(FieldError::forbidden(&FieldPath::root(*field), IMMUTABLE_DATA));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn invalid_keys_duplicates_and_size_are_rejected() {
        let validation_errors = |object: Value| messages(ConfigMap.validate(&object));
        assert!(validation_errors(json!({"data": {"a.b": "x"}, "binaryData": {"c": "eA=="}})).is_empty());
        assert_eq!(
            validation_errors(json!({"data": {"a b": "x"}})),
            [
                "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
            ]
        );
        assert_eq!(
            validation_errors(json!({"data": {"a": "x"}, "binaryData": {"a": "eA=="}})),
            ["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"]
        );
        assert_eq!(
            validation_errors(json!({"data": {"a": "x".repeat(DATA_BYTES_MAX)}})),
            Vec::<String>::new()[..]
        );
        let errors = ConfigMap.validate(&json!({"data": {"a": "x".repeat(DATA_BYTES_MAX + 1)}}));
        assert_eq!(errors[0].body(), "Too long: may not be more than 1048576 bytes");
    }

    #[test]
    fn immutable_config_map_rejects_changes() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        assert!(ConfigMap.validate_update(&old, &old).is_empty());
        assert_eq!(
            messages(ConfigMap.validate_update(&json!({"data": {"a": "2"}, "binaryData": {"b": ""}}), &old)),
            [
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
                "binaryData: Forbidden: field is immutable when `immutable` is set",
            ]
        );
        assert!(ConfigMap.validate_update(&old, &json!({"data": {"a": "2"}})).is_empty());
    }

    #[test]
    fn row_counts_entries() {
        let object = json!({"metadata": {"name": "m"}, "data": {"a": "1"}, "binaryData": {"b": ""}});
        assert_eq!(row(&COLUMNS, &object), json!(["m", 2, "<unknown>"]).as_array().unwrap()[..]);
    }
}
