//! Secret.

mod tls;

use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::config_map::{DATA_BYTES_MAX, decoded_length, validate_immutable_data, validate_keys};
use crate::{
    BuiltinKind,
    accessors::{annotation, map, text},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    selectable_fields: &["type"],
    columns: &COLUMNS,
    strategy: &Secret,
    ..BuiltinKind::new("", "secrets")
};

const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Type"),
        ColumnDefinition::text("Data"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        vec![name(object), text(object, "/type").into(), map(object, "/data").len().into(), age(object, now)]
    },
};

pub(crate) struct Secret;

impl Strategy for Secret {
    fn set_defaults(&self, object: &mut Value) {
        defaulting::set_if_zero(object, "type", "Opaque");
        // stringData is write-only.
        let written = object.as_object_mut().and_then(|map| map.remove("stringData"));
        if let Some(Value::Object(written)) = written
            && !written.is_empty()
            && let Some(data) = defaulting::object_mut_or_insert(object, "data")
        {
            for (key, value) in written {
                data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let data = map(object, "/data");
        let path = FieldPath::root("data");
        let mut errors = validate_keys(data, "data");
        if decoded_length(data) > DATA_BYTES_MAX {
            errors.push(FieldError::too_long(&path, DATA_BYTES_MAX));
        }
        let missing = |key: &str| -> Option<FieldError> {
            (!data.contains_key(key)).then(|| FieldError::required(&path.key(key), ""))
        };
        match text(object, "/type") {
            "kubernetes.io/service-account-token" if annotation(object, ACCOUNT_NAME).is_empty() => {
                let path = FieldPath::root("metadata").child("annotations").key(ACCOUNT_NAME);
                errors.push(FieldError::required(&path, ""));
            }
            "kubernetes.io/dockercfg" => errors.extend(validate_json(object, ".dockercfg")),
            "kubernetes.io/dockerconfigjson" => errors.extend(validate_json(object, ".dockerconfigjson")),
            "kubernetes.io/basic-auth" => {
                let (user, password) = (missing("username"), missing("password"));
                if user.is_some() && password.is_some() {
                    errors.extend(user.into_iter().chain(password));
                }
            }
            "kubernetes.io/ssh-auth" if text(object, "/data/ssh-privatekey").is_empty() => {
                errors.push(FieldError::required(&path.key("ssh-privatekey"), ""));
            }
            "kubernetes.io/tls" => errors.extend(missing("tls.crt").into_iter().chain(missing("tls.key"))),
            _ => {}
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> =
            validation::validate_immutable(object, old, "type", &FieldPath::nil()).into_iter().collect();
        errors.extend(validate_immutable_data(object, old, &["data"]));
        errors
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        if text(object, "/type") != "kubernetes.io/tls" {
            return Vec::new();
        }
        let bytes = |key: &str| {
            let encoded = map(object, "/data").get(key).and_then(Value::as_str).unwrap_or_default();
            STANDARD.decode(encoded).unwrap_or_default()
        };
        tls::key_pair_problem(&bytes("tls.crt"), &bytes("tls.key")).into_iter().collect()
    }
}

/// Validates that a key holds a JSON object.
fn validate_json(object: &Value, key: &str) -> Option<FieldError> {
    let path = FieldPath::root("data").key(key);
    let Some(encoded) = map(object, "/data").get(key) else {
        return Some(FieldError::required(&path, ""));
    };
    let bytes = STANDARD.decode(encoded.as_str().unwrap_or_default()).unwrap_or_default();
    let problem = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return None,
        Ok(other) => format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_type_name(&other)
        ),
        Err(error) if error.is_eof() => "unexpected end of JSON input".to_owned(),
        Err(_) => invalid_character_message(&bytes),
    };
    Some(FieldError::invalid(&path, "<secret contents redacted>", problem))
}

fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) | Value::Null => "object",
    }
}

/// Returns the error of Go's JSON decoder: it names the first byte that cannot begin a value.
fn invalid_character_message(bytes: &[u8]) -> String {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace()).copied().unwrap_or_default();
    format!("invalid character '{}' looking for beginning of value", char::from(first))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    fn validation_errors(object: Value) -> Vec<String> {
        messages(Secret.validate(&object))
    }

    #[test]
    fn string_data_is_encoded_and_type_defaults_to_opaque() {
        let mut object = json!({"data": {"a": "MQ==", "b": "Mg=="}, "stringData": {"b": "x"}});
        Secret.set_defaults(&mut object);
        assert_eq!(object, json!({"type": "Opaque", "data": {"a": "MQ==", "b": "eA=="}}));
    }

    #[test]
    fn typed_secrets_require_their_keys() {
        let none: [&str; 0] = [];
        assert_eq!(validation_errors(json!({"type": "Opaque", "data": {"a": ""}})), none);
        assert_eq!(
            validation_errors(json!({"type": "kubernetes.io/tls"})),
            ["data[tls.crt]: Required value", "data[tls.key]: Required value"]
        );
        assert_eq!(
            validation_errors(json!({"type": "kubernetes.io/basic-auth"})),
            ["data[username]: Required value", "data[password]: Required value"]
        );
        assert_eq!(
            validation_errors(json!({"type": "kubernetes.io/basic-auth", "data": {"password": ""}})),
            none
        );
        assert_eq!(
            validation_errors(json!({"type": "kubernetes.io/ssh-auth"})),
            ["data[ssh-privatekey]: Required value"]
        );
        assert_eq!(
            validation_errors(json!({"type": "kubernetes.io/service-account-token"})),
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"]
        );
        assert_eq!(
            validation_errors(json!({"type": "kubernetes.io/dockercfg"})),
            ["data[.dockercfg]: Required value"]
        );
        let docker = |content: &str| json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": STANDARD.encode(content)}});
        assert_eq!(validation_errors(docker("{}")), none);
        assert_eq!(
            validation_errors(docker("")),
            [
                r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": unexpected end of JSON input"#
            ]
        );
        assert_eq!(
            validation_errors(docker("x")),
            [
                r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character 'x' looking for beginning of value"#
            ]
        );
        assert_eq!(
            validation_errors(docker("[]")),
            [
                r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": json: cannot unmarshal array into Go value of type map[string]interface {}"#
            ]
        );
        let big = STANDARD.encode(vec![b'x'; DATA_BYTES_MAX + 1]);
        assert_eq!(
            validation_errors(json!({"data": {"a": big}})),
            ["data: Too long: may not be more than 1048576 bytes"]
        );
    }

    #[test]
    fn type_and_immutable_data_cannot_change() {
        let old = json!({"type": "Opaque", "immutable": true, "data": {"a": ""}});
        assert_eq!(
            messages(Secret.validate_update(&json!({"type": "x", "immutable": true, "data": {}}), &old)),
            [
                "type: Invalid value: \"x\": field is immutable",
                "data: Forbidden: field is immutable when `immutable` is set"
            ]
        );
        assert!(messages(Secret.validate_update(&old, &old)).is_empty());
    }

    #[test]
    fn row_shows_type_and_count() {
        let object = json!({"metadata": {"name": "s"}, "type": "Opaque", "data": {"a": ""}});
        assert_eq!(row(&COLUMNS, &object), json!(["s", "Opaque", 1, "<unknown>"]).as_array().unwrap()[..]);
    }
}
