//! OpenAPI version 2: one document.

use serde_json::{Value, json};

use super::{
    SpecVersion,
    parameters::Parameter,
    paths::{Body, Content, Operation, Path},
    schemas::{META, reference},
};
use crate::http::negotiation::{JSON_STREAM, MEDIA_TYPES, PROTOBUF_STREAM};

const STREAMED: &[&str] = &[JSON_STREAM, PROTOBUF_STREAM];
const PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// Encodes a path and its operations.
pub(super) fn path(path: &Path) -> Value {
    path.item(parameter, operation)
}

fn parameter(parameter: &Parameter) -> Value {
    let mut made = json!({
        "name": parameter.name, "in": super::place(parameter), "type": parameter.kind, "uniqueItems": true,
        "description": parameter.description(),
    });
    if parameter.in_path {
        made["required"] = true.into();
    }
    made
}

fn operation(operation: &Operation, parameters: &[Parameter]) -> Value {
    let streams = operation.answers.iter().any(|(_, content)| matches!(content, Content::Stream(_)));
    let produces: Vec<&str> =
        MEDIA_TYPES.iter().chain(streams.then_some(STREAMED).into_iter().flatten()).copied().collect();
    let mut made = json!({
        "operationId": operation.id, "tags": [operation.tag], "schemes": ["https"], "produces": produces,
        "consumes": consumes(&operation.body),
    });
    let parameters: Vec<Value> =
        body(&operation.body).into_iter().chain(parameters.iter().map(parameter)).collect();
    if !parameters.is_empty() {
        made["parameters"] = parameters.into();
    }
    operation.answer(&mut made, response);
    made
}

fn response(content: &Content) -> (&'static str, Value) {
    let schema = match content {
        Content::Object(name) | Content::Stream(name) => reference(name, SpecVersion::V2),
        Content::Text | Content::Log => json!({"type": "string"}),
    };
    ("schema", schema)
}

fn consumes(body: &Body) -> Vec<&'static str> {
    match body {
        Body::Patch { strategic } => PATCHES
            .iter()
            .copied()
            .chain(strategic.then_some("application/strategic-merge-patch+json"))
            .collect(),
        _ => vec!["*/*"],
    }
}

fn body(body: &Body) -> Option<Value> {
    let (name, required) = match body {
        Body::Nothing => return None,
        Body::Object(name) => (name.clone(), true),
        Body::DeleteOptions => (format!("{META}.DeleteOptions"), false),
        Body::Patch { .. } => (format!("{META}.Patch"), true),
    };
    let mut made = json!({"in": "body", "name": "body", "schema": reference(&name, SpecVersion::V2)});
    if required {
        made["required"] = true.into();
    }
    Some(made)
}
