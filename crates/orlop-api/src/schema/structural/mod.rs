//! Validation of a CRD's structural schema.
//!
//! Validated in this order: structural rules (every node typed, no structure in value validation), defaults, and
//! supported keywords. All functions work on the schema as written, so that error
//! paths name what the author wrote. The caller evaluates CEL rules:
//! [`validate_defaults`] takes a callback.

mod convertible;
mod default_values;
mod go_syntax;
mod invariants;
mod keywords;
mod relative_path;

pub use convertible::conversion_error;
pub use default_values::{DefaultValue, validate_defaults};
pub use go_syntax::{format_rule, format_schema};
pub use invariants::validate_structural_schema;
pub use keywords::{
    ValidationOptions, has_non_atomic_set_items, has_unidentifiable_items, has_unknown_types,
    validate_keywords,
};
pub use orlop_regex::ValidationBudget;
pub use relative_path::resolve;

use super::unstructured::{flag, text};
use crate::field_error::{FieldError, FieldPath};
use serde_json::{Map, Value, json};

const ROOT_KEYWORDS: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// Validates the root of a schema. The status subresource validates status alone, so it restricts the root's keywords.
pub fn validate_root(schema: &Value, path: &FieldPath, status_subresource: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if status_subresource {
        errors.extend(root_restriction(schema, path));
    }
    if flag(schema, "nullable") {
        errors.push(FieldError::forbidden(&path.child("nullable"), "nullable cannot be true at the root"));
    }
    errors
}

fn root_restriction(schema: &Value, path: &FieldPath) -> Option<FieldError> {
    let kind = text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let detail = r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        return Some(FieldError::invalid(&path.child("type"), kind, detail));
    }
    let unset = |value: &Value| {
        matches!(value, Value::Null | Value::Bool(false)) || *value == json!("") || *value == json!([])
    };
    let allowed = |key: &str| ROOT_KEYWORDS.iter().any(|(keyword, _)| *keyword == key);
    let known = |key: &str| allowed(key) || go_syntax::is_keyword(key);
    schema.as_object()?.iter().find(|(key, value)| known(key) && !allowed(key) && !unset(value))?;
    let names: Vec<_> = ROOT_KEYWORDS.iter().map(|(_, name)| *name).collect();
    let detail = format!(
        "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
        names.join(" ")
    );
    Some(FieldError::invalid_printed(path, format_schema(schema), detail))
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Validates everything but CEL rules.
    fn validate_structural(schema: &Value, path: &FieldPath, status_subresource: bool) -> Vec<FieldError> {
        let mut errors = validate_root(schema, path, status_subresource);
        let structural = validate_structural_schema(schema, path, &mut ValidationBudget::default());
        if structural.is_empty() {
            errors.extend(validate_defaults(schema, path, true, &mut |_| Vec::new()));
        }
        errors.extend(structural);
        errors.extend(validate_keywords(schema, path, ValidationOptions::default()));
        errors
    }

    fn errors(schema: Value) -> Vec<String> {
        let path = FieldPath::root("schema");
        validate_structural(&schema, &path, false).iter().map(ToString::to_string).collect()
    }

    fn spec_errors(schema: Value) -> Vec<String> {
        errors(json!({"type": "object", "properties": {"a": schema}}))
    }

    #[test]
    fn valid_schemas_pass() {
        for schema in [
            json!({"type": "object"}),
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^a"}}}, "spec": {"type": "object", "properties": {
                "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "other": {"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "x"}]},
                "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
                "limited": {"type": "object", "properties": {"x": {"type": "integer", "default": 3}}, "oneOf": [{"required": ["x"]}, {"properties": {"x": {"minimum": 5}}}]},
                "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}
            }}}}),
        ] {
            assert_eq!(errors(schema), Vec::<String>::new());
        }
    }

    #[test]
    fn empty_string_default_satisfies_list_map_key() {
        let list = |key: Value| {
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                   "items": {"type": "object", "properties": {"k": key}}})
        };
        assert_eq!(spec_errors(list(json!({"type": "string", "default": ""}))), Vec::<String>::new());
        let null = spec_errors(list(json!({"type": "string", "default": null})));
        assert!(null[0].contains("must have a default or be a required property"), "{null:?}");
    }

    #[test]
    fn empty_defaults_are_forbidden_where_defaults_are() {
        for default in [json!(""), json!([]), json!(false)] {
            let found = spec_errors(json!({"type": "string", "not": {"default": default}}));
            let expected = "schema.properties[a].not.default: Forbidden: must be undefined to be structural";
            assert!(found.iter().any(|error| error == expected), "{default}: {found:?}");
        }
        let metadata =
            errors(json!({"type": "object", "properties": {"kind": {"type": "string", "default": ""}}}));
        let expected = "schema.properties[kind].default: Forbidden: must not be set in top-level kind";
        assert!(metadata.iter().any(|error| error == expected), "{metadata:?}");
    }

    #[test]
    fn every_violation_has_kubernetes_message() {
        let cases: Vec<(Value, &str)> = vec![
            (
                json!({}),
                "schema.properties[a].type: Required value: must not be empty for specified object fields",
            ),
            (
                json!({"type": "array", "items": {}}),
                "schema.properties[a].items.type: Required value: must not be empty for specified array items",
            ),
            (json!({"type": "array"}), "schema.properties[a].items: Required value: must be specified"),
            (
                json!({"type": "integer", "anyOf": [{"type": "integer"}]}),
                "schema.properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "object", "allOf": [{"additionalProperties": {}}]}),
                "schema.properties[a].allOf[0].additionalProperties: Forbidden: must be undefined to be structural",
            ),
            (
                json!({"type": "integer", "oneOf": [{"default": 1}]}),
                "schema.properties[a].oneOf[0].default: Forbidden: must be undefined to be structural",
            ),
            (
                json!({"type": "integer", "not": {"description": "x"}}),
                "schema.properties[a].not.description: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "integer", "not": {"title": "x"}}),
                "schema.properties[a].not.title: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "integer", "not": {"nullable": true}}),
                "schema.properties[a].not.nullable: Forbidden: must be false to be structural",
            ),
            (
                json!({"type": "integer", "not": {"x-kubernetes-int-or-string": true}}),
                "schema.properties[a].not.x-kubernetes-int-or-string: Forbidden: must be false to be structural",
            ),
            (
                json!({"type": "integer", "not": {"x-kubernetes-preserve-unknown-fields": true}}),
                "schema.properties[a].not.x-kubernetes-preserve-unknown-fields: Forbidden: must be false to be structural",
            ),
            (
                json!({"type": "integer", "not": {"x-kubernetes-validations": [{"rule": "true"}]}}),
                "schema.properties[a].not.x-kubernetes-validations: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "object", "not": {"properties": {"metadata": {}}}, "properties": {"metadata": {"type": "object"}}}),
                "schema.properties[a].not.properties[metadata]: Forbidden: must not be specified in a nested context",
            ),
            (
                json!({"type": "object", "x-kubernetes-embedded-resource": true}),
                "schema.properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ),
            (
                json!({"type": "string", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
                "schema.properties[a].type: Invalid value: \"string\": must be object if x-kubernetes-embedded-resource is true",
            ),
            (
                json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true, "additionalProperties": true}),
                "schema.properties[a].additionalProperties: Forbidden: must not be used if x-kubernetes-embedded-resource is set",
            ),
            (
                json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
                "schema.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
            ),
            (
                json!({"type": "string", "x-kubernetes-preserve-unknown-fields": false}),
                "schema.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
                "schema.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
                "schema.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ),
            (
                json!({"type": "null"}),
                "schema.properties[a].type: Forbidden: type cannot be set to null, use nullable as an alternative",
            ),
            (
                json!({"type": "text"}),
                "schema.properties[a].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ),
            (
                json!({"type": "string", "$ref": "x"}),
                "schema.properties[a].$ref: Forbidden: $ref is not supported",
            ),
            (json!({"type": "string", "id": "x"}), "schema.properties[a].id: Forbidden: id is not supported"),
            (
                json!({"type": "object", "patternProperties": {"x": {}}}),
                "schema.properties[a].patternProperties: Forbidden: patternProperties is not supported",
            ),
            (
                json!({"type": "object", "definitions": {"x": {}}}),
                "schema.properties[a].definitions: Forbidden: definitions is not supported",
            ),
            (
                json!({"type": "object", "dependencies": {"x": ["y"]}}),
                "schema.properties[a].dependencies: Forbidden: dependencies is not supported",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "additionalItems": true}),
                "schema.properties[a].additionalItems: Forbidden: additionalItems is not supported",
            ),
            (
                json!({"type": "array", "items": [{"type": "string"}]}),
                "schema.properties[a].items: Forbidden: items must be a schema object and not an array",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}),
                "schema.properties[a].x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\"",
            ),
            (
                json!({"type": "string", "x-kubernetes-list-type": "set"}),
                "schema.properties[a].type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
            ),
            (
                json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
                "schema.properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["x"]}),
                "schema.properties[a].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["x"]}),
                "schema.properties[a].items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map",
            ),
            (
                json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["x"]}),
                "schema.properties[a].x-kubernetes-list-map-keys: Invalid value: [\"x\"]: entries must all be names of item properties",
            ),
            (
                json!({"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["x"]}),
                "schema.properties[a].items.properties[x].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ),
            (
                json!({"type": "array", "items": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string", "nullable": true}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["x"]}),
                "schema.properties[a].items.properties[x].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ),
            (
                json!({"type": "array", "items": {"type": "object", "required": ["x"], "properties": {"x": {"type": "object"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["x"]}),
                "schema.properties[a].items.properties[x].type: Invalid value: \"object\": must be a scalar type if parent array's x-kubernetes-list-type is map",
            ),
            (
                json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}),
                "schema.properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ),
            (
                json!({"type": "array", "items": {"type": "string", "nullable": true}, "x-kubernetes-list-type": "set"}),
                "schema.properties[a].items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
            ),
            (
                json!({"type": "object", "x-kubernetes-map-type": "loose"}),
                "schema.properties[a].x-kubernetes-map-type: Unsupported value: \"loose\": supported values: \"atomic\", \"granular\"",
            ),
            (
                json!({"type": "string", "x-kubernetes-map-type": "atomic"}),
                "schema.properties[a].type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified",
            ),
            (
                json!({"type": "string", "default": 5}),
                "schema.properties[a].default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
            ),
            (
                json!({"type": "object", "default": {"x": 1}, "properties": {"y": {"type": "string"}}}),
                "schema.properties[a].default: Invalid value: {\"x\":1}: must not have unknown fields",
            ),
            (
                json!({"type": "object", "default": {"y": 1}, "properties": {"y": {"type": "string"}}}),
                "schema.properties[a].default.y: Invalid value: \"integer\": y in body must be of type string: \"integer\"",
            ),
            (
                json!({"type": "string", "x-kubernetes-validations": [{"rule": " "}]}),
                "schema.properties[a].x-kubernetes-validations[0].rule: Required value: rule is not specified",
            ),
            (
                json!({"type": "string", "x-kubernetes-validations": [{"rule": "a\nb"}]}),
                "schema.properties[a].x-kubernetes-validations[0].message: Required value: message must be specified if rule contains line breaks",
            ),
            (
                json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "message": "a\nb"}]}),
                "schema.properties[a].x-kubernetes-validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
            ),
            (
                json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "reason": "No"}]}),
                "schema.properties[a].x-kubernetes-validations[0].reason: Unsupported value: \"No\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "string"}}, "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".y"}]}),
                "schema.properties[a].x-kubernetes-validations[0].fieldPath: Invalid value: \".y\": must be a valid path",
            ),
        ];
        for (schema, expected) in cases {
            let found = spec_errors(schema.clone());
            assert!(
                found.iter().any(|error| error == expected),
                "{schema}\n  wanted {expected}\n  found {found:#?}"
            );
        }
        assert_eq!(
            spec_errors(json!({"type": "string", "pattern": "("})),
            [
                "schema.properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"
            ]
        );
    }

    #[test]
    fn root_is_validated() {
        // Value validation must refer to declared fields, but only at the root, as in Kubernetes.
        let alternative = json!({"type": "object", "anyOf": [{"properties": {"x": {"minimum": 1}}}]});
        assert_eq!(
            errors(alternative.clone()),
            ["schema.properties[x]: Required value: because it is defined in schema.anyOf[0].properties[x]"]
        );
        assert!(errors(json!({"type": "object", "properties": {"a": alternative}})).is_empty());
        assert_eq!(errors(json!({})), ["schema.type: Required value: must not be empty at the root"]);
        assert_eq!(
            errors(json!({"type": "string"})),
            ["schema.type: Invalid value: \"string\": must be object at the root"]
        );
        assert_eq!(
            errors(json!({"type": "object", "nullable": true})),
            ["schema.nullable: Forbidden: nullable cannot be true at the root"]
        );
        assert!(
            errors(json!({"type": "object", "additionalProperties": {"type": "string"}}))
                .contains(&"schema.additionalProperties: Forbidden: must not be used at the root".to_owned())
        );
        let metadata = |schema: Value| errors(json!({"type": "object", "properties": {"metadata": schema}}));
        assert_eq!(
            metadata(json!({"type": "object", "properties": {"labels": {"type": "object"}}})),
            [
                "schema.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
            ]
        );
        assert_eq!(
            metadata(json!({"type": "string"})),
            ["schema.properties[metadata].type: Invalid value: \"string\": must be object"]
        );
        assert!(
            metadata(json!({"type": "object", "default": {}})).contains(
                &"schema.properties[metadata].default: Forbidden: must not be set in top-level metadata"
                    .to_owned()
            )
        );
        assert_eq!(
            errors(json!({"type": "object", "properties": {"kind": {"type": "integer"}}})),
            ["schema.properties[kind].type: Invalid value: \"integer\": must be string"]
        );
        let with_status = |schema: Value| validate_structural(&schema, &FieldPath::root("schema"), true);
        assert!(with_status(json!({"type": "object", "properties": {}, "description": "d"})).is_empty());
        let found = with_status(json!({"type": "object", "oneOf": [{"required": ["x"]}]}));
        assert!(found[0].detail.starts_with("only [Description Type Format"), "{found:?}");
    }
}
