//! Audit: every request has an id, and one line says what came of it.

use std::time::Instant;

use http::{HeaderMap, HeaderValue};

use crate::cluster::new_uid;

const AUDIT_ID: &str = "audit-id";
/// The longest id that is taken from a client.
const LENGTH_MAX: usize = 64;

/// What is known of a request from its beginning.
#[derive(Debug)]
pub(crate) struct Record {
    id: HeaderValue,
    started: Instant,
}

impl Record {
    /// Begins the record, under the client's id if it sent one.
    pub(crate) fn begin(headers: &HeaderMap) -> Self {
        let given = headers.get(AUDIT_ID).filter(|id| id.len() <= LENGTH_MAX).cloned();
        let id = given.or_else(|| HeaderValue::try_from(new_uid()).ok());
        Self { id: id.unwrap_or_else(|| HeaderValue::from_static("unknown")), started: Instant::now() }
    }

    /// When the request came.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Ends the record, and marks the answer with its id.
    pub(crate) fn end(
        &self,
        method: &http::Method,
        path: &str,
        user: &str,
        response: &mut HeaderMap,
        code: u16,
    ) {
        tracing::debug!(
            id = self.id.to_str().unwrap_or_default(),
            %method,
            path,
            user,
            code,
            took_us = self.started.elapsed().as_micros() as u64,
            "request"
        );
        response.insert(AUDIT_ID, self.id.clone());
    }
}
