//! Judges answers.

use std::{fmt, io};

use serde_json::Value;

use crate::http::{Answer, Request};

/// Bytes of a body that are shown.
const SHOWN_BYTES: usize = 600;

/// An answer that no client should see.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Groups faults with the same cause, roughly.
    pub(crate) kind: String,
    request: Request,
    answer: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {} {}", self.request.method, self.request.target())?;
        writeln!(f, "  Content-Type: {}  Accept: {}", self.request.content_type, self.request.accept)?;
        writeln!(f, "  body: {}", shorten(&self.request.body))?;
        write!(f, "  answer: {}", self.answer)
    }
}

fn shorten(bytes: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]).into_owned();
    if bytes.len() > SHOWN_BYTES { format!("{shown}… ({} bytes)", bytes.len()) } else { shown }
}

/// Returns the fault of an answer, if it has one.
pub(crate) fn judge(request: &Request, answer: &io::Result<Answer>) -> Option<Fault> {
    let fault = |kind: String, answer: String| Some(Fault { kind, request: request.clone(), answer });
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return fault(format!("no answer: {:?}", error.kind()), error.to_string()),
    };
    let shown = format!("{} {}", answer.code, shorten(&answer.body));
    if answer.code >= 500 && !is_expected(request, answer) {
        let message = status_message(&answer.body).unwrap_or_default();
        let beginning: String = message.chars().take(40).collect();
        return fault(format!("{} {} {beginning}", request.method, answer.code), shown);
    }
    if answer.code >= 400 && request.method != "HEAD" && answer.content_type.starts_with("application/json") {
        let status: Option<Value> = serde_json::from_slice(&answer.body).ok();
        let is_status = status.as_ref().is_some_and(|status| {
            status["kind"] == "Status" && status["code"] == answer.code && status["message"].is_string()
        });
        if !is_status {
            return fault(format!("{} {} without a Status", request.method, answer.code), shown);
        }
    }
    None
}

/// Messages of malformed patches that Kubernetes answers with 500 too: see COMPAT.md.
const KUBERNETES_500: &[fn(&str) -> bool] = &[
    |message| message.starts_with("failed to create typed patch object ("),
    |message| message.starts_with("unknown patch type: "),
    |message| message.starts_with("list element types are not identical: "),
    |message| message.starts_with("map: ") && message.contains(" does not contain declared merge key: "),
];

/// Answers of 5xx that Kubernetes gives to the same requests.
fn is_expected(request: &Request, answer: &Answer) -> bool {
    let message = status_message(&answer.body).unwrap_or_default();
    match answer.code {
        500 => KUBERNETES_500.iter().any(|is_of| is_of(&message)),
        // A request that asks for a short deadline, or for a revision yet to come, gets this.
        504 => {
            let deadline = request.query.iter().any(|(name, _)| name == "timeout");
            deadline || message.starts_with("Too large resource version: ")
        }
        _ => false,
    }
}

fn status_message(body: &[u8]) -> Option<String> {
    let status: Value = serde_json::from_slice(body).ok()?;
    status["message"].as_str().map(str::to_owned)
}
