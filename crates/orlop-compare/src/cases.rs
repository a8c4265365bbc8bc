//! Cases of `data/cases.json`: requests that were once answered differently, in the order in which they are sent.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::request::{JSON, Request};

/// A named sequence of requests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    requests: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Method and path.
    send: String,
    #[serde(default)]
    body: Option<Value>,
    /// A body that is not JSON, or whose form matters.
    #[serde(default)]
    text: Option<String>,
    #[serde(default, rename = "type")]
    content_type: Option<String>,
    #[serde(default)]
    accept: Option<String>,
    /// Status code that Kubernetes answers. A test of `orlop-server` holds Orlop to it.
    expect: u16,
}

pub(crate) fn load() -> Result<Vec<Request>> {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../data/cases.json")).context("data/cases.json")?;
    let mut requests = Vec::new();
    for case in cases {
        for step in case.requests {
            let (method, path) = step.send.split_once(' ').context("method and path")?;
            anyhow::ensure!((200..600).contains(&step.expect), "{}: no status code", step.send);
            let body = step.text.or_else(|| step.body.as_ref().map(Value::to_string));
            requests.push(Request {
                label: format!("case {}", case.name),
                method: method.to_owned(),
                path: path.to_owned(),
                content_type: step.content_type.unwrap_or_else(|| JSON.to_owned()),
                accept: step.accept.unwrap_or_else(|| JSON.to_owned()),
                body,
            });
        }
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    #[test]
    fn cases_load() {
        assert!(super::load().unwrap().len() > 60);
    }
}
