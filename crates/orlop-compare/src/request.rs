//! Requests.

use serde_json::Value;

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The family it belongs to, for selection and for the report.
    pub(crate) label: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) content_type: String,
    pub(crate) accept: String,
    pub(crate) body: Option<String>,
}

impl Request {
    pub(crate) fn new(label: impl Into<String>, method: &str, path: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            method: method.to_owned(),
            path: path.into(),
            content_type: JSON.to_owned(),
            accept: JSON.to_owned(),
            body: None,
        }
    }

    pub(crate) fn body(self, body: &Value) -> Self {
        Self { body: Some(body.to_string()), ..self }
    }

    pub(crate) fn text(self, body: &str) -> Self {
        Self { body: Some(body.to_owned()), ..self }
    }

    pub(crate) fn content_type(self, content_type: &str) -> Self {
        Self { content_type: content_type.to_owned(), ..self }
    }

    pub(crate) fn accept(self, accept: &str) -> Self {
        Self { accept: accept.to_owned(), ..self }
    }

    /// Returns a line about the request.
    pub(crate) fn summary(&self) -> String {
        let body: String = self.body.iter().flat_map(|body| body.chars()).take(300).collect();
        let Self { label, method, path, content_type, .. } = self;
        let kind = if content_type == JSON { "" } else { content_type };
        format!("[{label}] {method} {path} {kind} {body}")
    }
}
