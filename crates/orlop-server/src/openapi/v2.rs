//! OpenAPI version 2: one document.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE};
use orlop_api::go_text;
use serde_json::{Value, json};

use super::{
    SpecVersion,
    parameters::Parameter,
    paths::{self, Body, Content, Operation},
    references::{META, reference},
};
use crate::http::negotiation::{JSON_STREAM, MEDIA_TYPES, PROTOBUF_STREAM};

const STREAMED: &[&str] = &[JSON_STREAM, PROTOBUF_STREAM];
const CUSTOM_TYPES: &[&str] = &["application/json", "application/yaml"];
const PATCHES: &[&str] = &["application/json-patch+json", "application/merge-patch+json"];

/// Encodes parts of a document.
#[derive(Default)]
pub(super) struct Encoder {
    /// Parameters that operations refer to, by name.
    pub(super) shared: BTreeMap<String, Value>,
}

impl paths::Encoder for Encoder {
    fn parameter(&mut self, parameter: &Parameter, description: String) -> Value {
        let place = super::place(parameter);
        let mut made = json!({
            "name": parameter.name, "in": place, "type": parameter.kind, "uniqueItems": true,
            "description": description,
        });
        if parameter.in_path {
            made["required"] = true.into();
        }
        // Names of objects are described by kind. By the other two kubectl decides what to leave to the server.
        if matches!(parameter.name, "name" | "dryRun" | "fieldValidation") {
            return made;
        }
        let required = if parameter.in_path { r#","required":true"# } else { "" };
        let hashed = format!(
            r#"{{"uniqueItems":true,"type":"{}","description":{},"name":"{}","in":"{place}"{required}}}"#,
            parameter.kind,
            go_text::json(&Value::from(description)),
            parameter.name
        );
        self.share(parameter.name, &hashed, made)
    }

    fn operation(&mut self, operation: &Operation, parameters: Vec<Value>) -> Value {
        let streams = operation.answers.iter().any(|(_, content)| matches!(content, Content::Stream(_)));
        let produces: Vec<&str> = match operation.answers.first() {
            Some((_, Content::Text)) => vec!["*/*"],
            Some((_, Content::Log)) => ["text/plain"].iter().chain(MEDIA_TYPES).copied().collect(),
            _ if operation.custom => CUSTOM_TYPES.to_vec(),
            _ => {
                MEDIA_TYPES.iter().chain(streams.then_some(STREAMED).into_iter().flatten()).copied().collect()
            }
        };
        let mut made = json!({
            "operationId": operation.id, "tags": [operation.tag], "schemes": ["https"], "produces": produces,
            "consumes": consumes(operation),
        });
        let parameters: Vec<Value> = self.body(&operation.body).into_iter().chain(parameters).collect();
        if !parameters.is_empty() {
            made["parameters"] = parameters.into();
        }
        operation.answer(&mut made, response);
        made
    }
}

impl Encoder {
    fn body(&mut self, body: &Body) -> Option<Value> {
        let (name, required) = match body {
            Body::Nothing => return None,
            Body::Object(name) => (name.clone(), true),
            Body::DeleteOptions => (format!("{META}.DeleteOptions"), false),
            Body::Patch { .. } => (format!("{META}.Patch"), true),
        };
        let schema = reference(&name, SpecVersion::V2);
        let mut made = json!({"in": "body", "name": "body", "schema": schema});
        if required {
            made["required"] = true.into();
        }
        if matches!(body, Body::Object(_)) {
            return Some(made);
        }
        let required = if required { r#""required":true,"# } else { "" };
        let hashed =
            format!(r#"{{"name":"body","in":"body",{required}"schema":{}}}"#, go_text::json(&schema));
        Some(self.share("body", &hashed, made))
    }

    /// Adds a shared parameter and returns a reference to it. Kubernetes' names of them end with a hash of their JSON in the
    /// order of Go's structs.
    fn share(&mut self, name: &str, hashed: &str, parameter: Value) -> Value {
        let hash = fnv1_64(hashed.as_bytes()).to_be_bytes();
        let name = format!("{name}-{}", URL_SAFE.encode(&hash[..6]));
        let reference = json!({"$ref": format!("#/parameters/{name}")});
        self.shared.entry(name).or_insert(parameter);
        reference
    }
}

/// The 64-bit FNV-1 hash.
fn fnv1_64(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte))
}

fn response(content: &Content) -> (&'static str, Value) {
    let schema = match content {
        Content::Object(name) | Content::Stream(name) => reference(name, SpecVersion::V2),
        Content::Text | Content::Log => json!({"type": "string"}),
    };
    ("schema", schema)
}

fn consumes(operation: &Operation) -> Vec<&'static str> {
    match operation.body {
        Body::Patch { strategic } => PATCHES
            .iter()
            .copied()
            .chain(strategic.then_some("application/strategic-merge-patch+json"))
            .chain(["application/apply-patch+yaml"])
            .collect(),
        _ if operation.custom => CUSTOM_TYPES.to_vec(),
        // A list of resources.
        _ if operation.action.is_empty() => MEDIA_TYPES.to_vec(),
        _ => vec!["*/*"],
    }
}
