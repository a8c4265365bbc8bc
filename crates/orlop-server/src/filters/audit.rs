//! Audit: every request has an id, and one line says what came of it.

use std::{fmt, sync::Arc, time::Instant};

use http::{HeaderMap, HeaderValue};

use crate::{auth::User, object::new_uid};

const AUDIT_ID: &str = "audit-id";
/// The longest id that is taken from a client.
const LENGTH_MAX: usize = 64;

/// Who is behind a request, as far as that is known.
#[derive(Debug, Default)]
pub(crate) struct Who {
    pub(crate) asks: Option<Arc<User>>,
    /// The same, unless it acts as somebody else.
    pub(crate) acts_as: Option<Arc<User>>,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.asks, &self.acts_as) {
            (None, _) => Ok(()),
            (Some(asks), Some(acts_as)) if asks.name != acts_as.name => {
                write!(f, "{} as {}", asks.name, acts_as.name)
            }
            (Some(asks), _) => f.write_str(&asks.name),
        }
    }
}

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
        who: &Who,
        response: &mut HeaderMap,
        code: u16,
    ) {
        tracing::debug!(
            id = self.id.to_str().unwrap_or_default(),
            %method,
            path,
            user = %who,
            code,
            took_us = self.started.elapsed().as_micros() as u64,
            "request"
        );
        let mut id = self.id.clone();
        // Each is different: in the table of headers that HTTP/2 keeps for later, ids would push out all that comes
        // again.
        id.set_sensitive(true);
        response.insert(AUDIT_ID, id);
    }
}
