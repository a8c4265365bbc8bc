//! Audit: each request has an id, and one log line records its result.

use std::{sync::Arc, time::Instant};

use http::{HeaderMap, HeaderValue, request::Parts};
use orlop_api::user::UserInfo;

use crate::object::new_uid;

const AUDIT_ID: &str = "audit-id";
/// Bytes of an id that is accepted from a client.
const CLIENT_ID_BYTES_MAX: usize = 64;

/// The audit record of a request.
#[derive(Debug)]
pub(crate) struct Record {
    id: HeaderValue,
    started: Instant,
    /// The authenticated user.
    pub(crate) user: Option<Arc<UserInfo>>,
    /// The user that the authenticated user impersonates; the same if none.
    pub(crate) effective_user: Option<Arc<UserInfo>>,
}

impl Record {
    /// Starts a record under the client's id, if it sent one.
    pub(crate) fn start(headers: &HeaderMap) -> Self {
        let given = headers.get(AUDIT_ID).filter(|id| id.len() <= CLIENT_ID_BYTES_MAX).cloned();
        let id = given.or_else(|| HeaderValue::try_from(new_uid()).ok());
        Self {
            id: id.unwrap_or_else(|| HeaderValue::from_static("unknown")),
            started: Instant::now(),
            user: None,
            effective_user: None,
        }
    }

    /// Returns the time at which the request arrived.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Logs the record, and adds its id to the response.
    pub(crate) fn finish(&self, request: &Parts, response: &mut HeaderMap, code: u16) {
        let user = self.user.as_ref().map_or("", |user| &user.name);
        let effective = self.effective_user.as_ref().map_or("", |user| &user.name);
        let impersonated = if effective == user { "" } else { effective };
        tracing::debug!(
            id = self.id.to_str().unwrap_or_default(),
            method = %request.method,
            path = request.uri.path(),
            user,
            impersonated,
            code,
            took_us = self.started.elapsed().as_micros() as u64,
            "request"
        );
        let mut id = self.id.clone();
        // Every id is different: indexed, they would evict all other headers from HTTP/2's dynamic table.
        id.set_sensitive(true);
        response.insert(AUDIT_ID, id);
    }
}
