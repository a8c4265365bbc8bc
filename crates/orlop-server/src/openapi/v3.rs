//! OpenAPI version 3: a document per group version.

use serde_json::{Map, Value, json};

use super::{
    SpecVersion,
    parameters::Parameter,
    paths::{self, Body, Content, Operation},
    references::{META, reference},
};
use crate::http::negotiation::{JSON_STREAM, PROTOBUF_STREAM};

const MEDIA_TYPES: &[&str] = &["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];
const CUSTOM_TYPES: &[&str] = &["application/json", "application/yaml"];
const STREAM_TYPES: &[&str] = &[JSON_STREAM, PROTOBUF_STREAM];
const PATCH_TYPES: &[&str] =
    &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];

/// Encodes parts of a document.
pub(super) struct Encoder;

impl paths::Encoder for Encoder {
    fn parameter(&mut self, parameter: &Parameter, description: String) -> Value {
        let schema = json!({"type": parameter.kind, "uniqueItems": true});
        let mut made = json!({
            "name": parameter.name, "in": super::place(parameter), "schema": schema, "description": description,
        });
        if parameter.in_path {
            made["required"] = true.into();
        }
        made
    }

    fn operation(&mut self, operation: &Operation, parameters: Vec<Value>) -> Value {
        let mut made = json!({"operationId": operation.id, "tags": [operation.tag]});
        if !parameters.is_empty() {
            made["parameters"] = parameters.into();
        }
        if let Some(body) = body(&operation.body, operation.custom) {
            made["requestBody"] = body;
        }
        operation.answer(&mut made, |answered| ("content", content(answered, operation.custom)));
        made
    }
}

fn body(body: &Body, custom: bool) -> Option<Value> {
    let referred = |name: &str| json!({"schema": reference(name, SpecVersion::V3)});
    let content = |name: &str| -> Value {
        let types = if custom { CUSTOM_TYPES } else { &["*/*"] };
        types.iter().map(|media| ((*media).to_owned(), referred(name))).collect::<Map<_, _>>().into()
    };
    Some(match body {
        Body::Nothing => return None,
        Body::Object(name) => json!({"content": content(name), "required": true}),
        Body::DeleteOptions => json!({"content": content(&format!("{META}.DeleteOptions"))}),
        Body::Patch { strategic } => {
            let strategic = strategic.then_some("application/strategic-merge-patch+json");
            let patch = referred(&format!("{META}.Patch"));
            let types = PATCH_TYPES.iter().copied().chain(strategic);
            let content: Map<String, Value> = types.map(|media| (media.to_owned(), patch.clone())).collect();
            json!({"content": content, "required": true})
        }
    })
}

fn content(content: &Content, custom: bool) -> Value {
    let (schema, streams) = match content {
        Content::Object(name) => (reference(name, SpecVersion::V3), false),
        Content::Stream(name) => (reference(name, SpecVersion::V3), true),
        Content::Log => {
            let types = MEDIA_TYPES.iter().chain(&["text/plain"]);
            let text = json!({"schema": {"type": "string"}});
            return types.map(|media| ((*media).to_owned(), text.clone())).collect::<Map<_, _>>().into();
        }
        Content::Text => return json!({"*/*": {"schema": {"type": "string"}}}),
    };
    let (media_types, streams) = if custom { (CUSTOM_TYPES, false) } else { (MEDIA_TYPES, streams) };
    let types = media_types.iter().chain(streams.then_some(STREAM_TYPES).into_iter().flatten());
    types.map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
}
