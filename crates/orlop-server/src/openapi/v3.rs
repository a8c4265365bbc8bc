//! OpenAPI version 3: a document per group version.

use serde_json::{Map, Value, json};

use super::{
    SpecVersion,
    parameters::Parameter,
    paths::{Body, Content, Operation, Path},
    schemas::{META, reference},
};
use crate::http::negotiation::{JSON_STREAM, PROTOBUF_STREAM};

const MEDIA_TYPES: &[&str] = &["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];
const STREAM_TYPES: &[&str] = &[JSON_STREAM, PROTOBUF_STREAM];
const PATCH_TYPES: &[&str] =
    &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];

/// Encodes a path and its operations.
pub(super) fn path(path: &Path) -> Value {
    path.item(parameter, operation)
}

fn parameter(parameter: &Parameter) -> Value {
    let schema = json!({"type": parameter.kind, "uniqueItems": true});
    let mut made = json!({
        "name": parameter.name, "in": super::place(parameter), "schema": schema,
        "description": parameter.description(),
    });
    if parameter.in_path {
        made["required"] = true.into();
    }
    made
}

fn operation(operation: &Operation, parameters: &[Parameter]) -> Value {
    let mut made = json!({"operationId": operation.id, "tags": [operation.tag]});
    if !parameters.is_empty() {
        made["parameters"] = parameters.iter().map(parameter).collect();
    }
    if let Some(body) = body(&operation.body) {
        made["requestBody"] = body;
    }
    operation.answer(&mut made, response);
    made
}

fn body(body: &Body) -> Option<Value> {
    let referred = |name: &str| json!({"schema": reference(name, SpecVersion::V3)});
    Some(match body {
        Body::Nothing => return None,
        Body::Object(name) => json!({"content": {"*/*": referred(name)}, "required": true}),
        Body::DeleteOptions => json!({"content": {"*/*": referred(&format!("{META}.DeleteOptions"))}}),
        Body::Patch { strategic } => {
            let strategic = strategic.then_some("application/strategic-merge-patch+json");
            let patch = referred(&format!("{META}.Patch"));
            let types = PATCH_TYPES.iter().copied().chain(strategic);
            let content: Map<String, Value> = types.map(|media| (media.to_owned(), patch.clone())).collect();
            json!({"content": content, "required": true})
        }
    })
}

fn response(content: &Content) -> (&'static str, Value) {
    ("content", self::content(content))
}

fn content(content: &Content) -> Value {
    let (schema, streams) = match content {
        Content::Object(name) => (reference(name, SpecVersion::V3), false),
        Content::Stream(name) => (reference(name, SpecVersion::V3), true),
        Content::Log => return json!({"text/plain": {"schema": {"type": "string"}}}),
        Content::Text => return json!({"*/*": {"schema": {"type": "string"}}}),
    };
    let types = MEDIA_TYPES.iter().chain(streams.then_some(STREAM_TYPES).into_iter().flatten());
    types.map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
}
