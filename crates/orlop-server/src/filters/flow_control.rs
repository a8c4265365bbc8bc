//! Flow control filter: a request executes when it gets its seats, or is rejected.
//!
//! Seats are held until the response is complete: of a list until its last page is produced, of a watch until it has
//! sent the objects that were there. Exec, proxies and logs take none.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use orlop_flow_control::{Classified, Controller, ListWork, Rejected, Seats, Started};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    flow_control::{FlowControl, InFlightLimits},
    http::{body::Body, held::HeldBody, query::Query, response},
    request::{Attributes, Verb},
};

/// Maximum time in a queue.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Part of its time that a request may spend in a queue.
const WAIT_FRACTION: u32 = 4;
/// Seconds after which a client should try again, where there is no fairness.
const RETRY_AFTER_SECONDS: u64 = 1;

const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A connection.
    Client,
    /// The process itself.
    InProcess,
}

/// A request to decide about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived<'a> {
    pub(crate) attributes: &'a Attributes,
    pub(crate) path: &'a str,
    pub(crate) query: &'a Query,
    pub(crate) origin: Origin,
    /// Time at which it arrived, and the time that it has from then on.
    pub(crate) started: Instant,
    pub(crate) limit: Duration,
}

/// The right to execute.
#[derive(Debug)]
pub(crate) enum Permit {
    /// Nothing counts the request.
    Free,
    /// Seats of its level.
    Seats(Seats),
    /// A place among requests in flight.
    InFlight(OwnedSemaphorePermit),
}

/// A request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyRequests {
    retry_after_seconds: u64,
}

impl TooManyRequests {
    /// Returns Kubernetes' response, which is no Status.
    pub(crate) fn response(self) -> Response<Body> {
        let text = Bytes::from_static(b"Too many requests, please try again later.\n");
        let mut response = response::bytes(429, "text/plain; charset=utf-8", text);
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(self.retry_after_seconds));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}

/// Decides about a request. Returns the right to execute, and its class.
pub(crate) async fn admit(
    flow_control: &FlowControl,
    arrived: Arrived<'_>,
) -> (Result<Permit, TooManyRequests>, Option<Arc<Classified>>) {
    let attributes = arrived.attributes;
    if attributes.is_long_running() && attributes.verb != Verb::Watch {
        return (Ok(Permit::Free), None);
    }
    let class = match (&flow_control.in_flight, arrived.origin) {
        (_, Origin::InProcess) => flow_control.controller.in_process().clone(),
        (None, Origin::Client) => flow_control.controller.classify(attributes),
        (Some(limits), Origin::Client) => return (limits.admit(attributes), None),
    };
    let permit = match seats(&flow_control.controller, &class, arrived).await {
        Ok(seats) => Ok(Permit::Seats(seats)),
        Err(Rejected { retry_after_seconds, .. }) => Err(TooManyRequests { retry_after_seconds }),
    };
    (permit, Some(class))
}

async fn seats(controller: &Controller, class: &Classified, arrived: Arrived<'_>) -> Result<Seats, Rejected> {
    let list = || list_work(arrived.query);
    match controller.start(class, arrived.attributes, arrived.path, list) {
        Started::Executing(seats) => Ok(seats),
        Started::Waiting(ticket) => {
            let patience = (arrived.limit / WAIT_FRACTION).min(WAIT_MAX);
            let left = patience.saturating_sub(arrived.started.elapsed());
            ticket.dispatched(tokio::time::sleep(left)).await
        }
        Started::Rejected(rejected) => Err(rejected),
    }
}

fn list_work(query: &Query) -> ListWork {
    let (labels, fields) = (query.text("labelSelector"), query.text("fieldSelector"));
    let version = query.text("resourceVersion");
    ListWork {
        limit: query.text("limit").parse().unwrap_or(0),
        has_selector: !labels.is_empty() || !fields.is_empty(),
        is_single: fields.starts_with("metadata.name="),
        sends_present: query.switch("sendInitialEvents") == Some(true) || matches!(version, "" | "0"),
    }
}

impl InFlightLimits {
    fn admit(&self, attributes: &Attributes) -> Result<Permit, TooManyRequests> {
        let limit = if attributes.verb.is_read_only() { &self.reading } else { &self.mutating };
        // Watches are long-running: they are not counted.
        let Some(limit) = limit.as_ref().filter(|_| attributes.verb != Verb::Watch) else {
            return Ok(Permit::Free);
        };
        match Semaphore::try_acquire_owned(limit.clone()) {
            Ok(permit) => Ok(Permit::InFlight(permit)),
            // The administrator can always act.
            Err(_) if attributes.user.is_master() => Ok(Permit::Free),
            Err(_) => Err(TooManyRequests { retry_after_seconds: RETRY_AFTER_SECONDS }),
        }
    }
}

impl Permit {
    /// Holds the right until a response is complete.
    pub(crate) fn hold(self, response: Response<Body>) -> Response<Body> {
        match self {
            Self::Seats(seats) => response.map(|body| HeldBody::hold(body, seats)),
            Self::Free => response,
            Self::InFlight(permit) => response.map(|body| HeldBody::hold(body, permit)),
        }
    }
}

/// Names the class of a request in the headers of its response. Names are not disclosed, only UIDs.
pub(crate) fn write_headers(class: &Classified, headers: &mut HeaderMap) {
    let uids = [(FLOW_SCHEMA_UID, &class.schema_uid), (PRIORITY_LEVEL_UID, &class.level_uid)];
    for (name, uid) in uids {
        if !uid.is_empty() {
            headers.insert(name, uid.clone());
        }
    }
}
