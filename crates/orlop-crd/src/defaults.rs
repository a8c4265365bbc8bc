//! Defaulting of CustomResourceDefinitions.

use orlop_api::schema::unstructured::{entry, list, text};
use serde_json::{Map, Value, json};

/// Default port of a webhook's service.
const SERVICE_PORT: u16 = 443;

/// Applies the defaults of `apiextensions.k8s.io/v1`.
pub fn apply_defaults(definition: &mut Value) {
    let Some(object) = definition.as_object_mut() else { return };
    let spec = object.entry("spec").or_insert_with(|| Value::Object(Map::new()));
    default_spec(spec);
    let storage =
        list(spec, "versions").iter().find(|version| version.get("storage") == Some(&Value::Bool(true)));
    let storage = storage.map(|version| text(version, "name").to_owned());
    let Some(status) = entry(object, "status") else { return };
    let stored = status.get("storedVersions").and_then(Value::as_array);
    if let Some(storage) = storage.filter(|_| stored.is_none_or(Vec::is_empty)) {
        status.insert("storedVersions".to_owned(), json!([storage]));
    }
}

fn default_spec(spec: &mut Value) {
    let Some(spec) = spec.as_object_mut() else { return };
    if let Some(names) = entry(spec, "names") {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let absent = |key: &str| names.get(key).and_then(Value::as_str).unwrap_or_default().is_empty();
        let (singular, list_kind) = (absent("singular"), absent("listKind"));
        if singular && !kind.is_empty() {
            names.insert("singular".to_owned(), kind.to_lowercase().into());
        }
        if list_kind && !kind.is_empty() {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    let service = spec.get_mut("conversion").and_then(|conversion| {
        conversion.get_mut("webhook")?.get_mut("clientConfig")?.get_mut("service")?.as_object_mut()
    });
    if let Some(service) = service.filter(|service| service.get("port").is_none_or(Value::is_null)) {
        service.insert("port".to_owned(), SERVICE_PORT.into());
    }
}
