//! Audit filter: each request has an id, a log line records its result, and audit events tell who did what.
//!
//! The policy is asked once the user is known. An event is sent when the request is received, when a long-running
//! response starts, and when the response is complete: for a stream, when its body ends or its client goes away.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context as Task, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header, request::Parts};
use http_body::Body as _;
use orlop_api::{protobuf, status::Status, time::Time, user::UserInfo};
use orlop_audit::{
    Auditor, Context, Event, Level, Stage,
    backend::Delivery,
    context::OBJECT_BYTES_MAX,
    event::{ResponseStatus, TRUNCATED},
    policy::Verdict,
};
use orlop_net::http::WriteBarrier;
use serde_json::Value;

use crate::{
    auth::{Decision, Evaluation},
    http::body::{Body, BodyWrapper, PolledFrame},
    object::{new_uid, now},
    request::Attributes,
};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Bytes of an id that is accepted from a client.
const CLIENT_ID_BYTES_MAX: usize = 64;
/// Latency from which on an event tells it, as in Kubernetes.
const LATENCY_MIN: Duration = Duration::from_millis(500);

/// The audit record of a request.
#[derive(Debug)]
pub(crate) struct Record {
    id: HeaderValue,
    started: Instant,
    received: Time,
    /// The authenticated user.
    user: Option<Arc<UserInfo>>,
    /// The user that the authenticated user impersonates; the same if none.
    effective_user: Option<Arc<UserInfo>>,
    audited: Option<Box<Audited>>,
}

/// Facts about a request that its event needs.
pub(crate) struct Auditing<'a> {
    /// The audit of the server, if any.
    pub(crate) auditor: Option<&'a Arc<Auditor>>,
    /// Method, path and headers.
    pub(crate) parts: &'a Parts,
    /// Address of the client.
    pub(crate) peer: Option<IpAddr>,
    /// True if the connection passes [`LogBarrier`] before it sends a response.
    pub(crate) behind_barrier: bool,
}

/// Lets no response pass before the events that it completes are written.
#[derive(Debug)]
pub(crate) struct LogBarrier(pub(crate) Arc<Auditor>);

impl WriteBarrier for LogBarrier {
    fn pass(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        self.0.flush()
    }
}

/// The event of a request. It is sent when this is dropped, at the latest.
#[derive(Debug)]
struct Audited {
    auditor: Arc<Auditor>,
    event: Event,
    verdict: Verdict,
    context: Arc<Context>,
    captured: Option<Arc<Mutex<Captured>>>,
    started: Instant,
    progress: Progress,
    /// Delivery of the events of the response.
    delivery: Delivery,
}

/// Events of a request that are still to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Only ResponseStarted: the request was refused before its user was known.
    Refused,
    /// ResponseComplete, or Panic.
    Running,
    /// None.
    Finished,
}

impl Record {
    /// Starts a record under the client's id, if it sent one.
    pub(crate) fn start(headers: &HeaderMap) -> Self {
        let given = headers.get(AUDIT_ID).filter(|id| id.len() <= CLIENT_ID_BYTES_MAX).cloned();
        let id = given.or_else(|| HeaderValue::try_from(new_uid()).ok());
        Self {
            id: id.unwrap_or_else(|| HeaderValue::from_static("unknown")),
            started: Instant::now(),
            received: now(),
            user: None,
            effective_user: None,
            audited: None,
        }
    }

    /// Returns the id of the request.
    pub(crate) fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    /// Returns the time at which the request arrived.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Records that the request is refused before its user is known.
    pub(crate) fn refuse(&mut self, auditing: &Auditing<'_>, attributes: &Arc<Attributes>) {
        self.begin(auditing, attributes, None);
    }

    /// Records that the request of an authenticated user is received. An error means that it cannot be audited, and
    /// must not be.
    pub(crate) async fn receive(
        &mut self,
        auditing: &Auditing<'_>,
        attributes: &Arc<Attributes>,
    ) -> Result<(), Status> {
        self.user = Some(attributes.user.clone());
        self.effective_user = Some(attributes.user.clone());
        self.begin(auditing, attributes, Some(&attributes.user));
        let Some(audited) = &mut self.audited else { return Ok(()) };
        if audited.record(Stage::RequestReceived).await {
            return Ok(());
        }
        audited.auditor.rejected();
        Err(Status::internal("failed to store audit event"))
    }

    fn begin(&mut self, auditing: &Auditing<'_>, attributes: &Arc<Attributes>, user: Option<&Arc<UserInfo>>) {
        let Some(auditor) = auditing.auditor else { return };
        let verdict = auditor.evaluate(attributes, user.map(|user| &**user));
        if verdict.level == Level::None {
            return;
        }
        let Parts { uri, headers, .. } = auditing.parts;
        let mut event = Event::new(
            verdict.level,
            self.id.clone(),
            uri.clone(),
            attributes.clone(),
            headers,
            auditing.peer,
            self.received,
        );
        event.user = user.cloned();
        self.audited = Some(Box::new(Audited {
            auditor: auditor.clone(),
            event,
            verdict,
            context: Arc::new(Context::new(verdict)),
            captured: None,
            started: self.started,
            progress: if user.is_some() { Progress::Running } else { Progress::Refused },
            delivery: if auditing.behind_barrier { Delivery::BeforeResponse } else { Delivery::Awaited },
        }));
    }

    /// Records the user that the request is made as, and the verb that allowed it if it is that of a constrained mode.
    pub(crate) fn impersonate(&mut self, user: &Arc<UserInfo>, constraint: Option<&'static str>) {
        let same = self.user.as_ref().is_some_and(|authenticated| Arc::ptr_eq(authenticated, user));
        if !same && let Some(audited) = &mut self.audited {
            audited.event.impersonated = Some(user.clone());
            audited.event.impersonation_constraint = constraint.map(Into::into);
        }
        self.effective_user = Some(user.clone());
    }

    /// Records the decision of authorization; of one that could not be made only that.
    pub(crate) fn authorized(&mut self, evaluation: Evaluation) {
        let Some(audited) = &mut self.audited else { return };
        let (word, reason) = match evaluation.decision {
            Decision::Deny(_) | Decision::NoOpinion(_) if !evaluation.errors.is_empty() => {
                audited.event.annotations.add("authorization.k8s.io/reason", "internal error");
                return;
            }
            Decision::Allow(reason) => ("allow", reason),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => ("forbid", reason),
        };
        audited.event.annotations.add("authorization.k8s.io/decision", word);
        audited.event.annotations.add("authorization.k8s.io/reason", reason);
    }

    /// Returns the part of the record that handlers add to; `None` if the request is not audited.
    pub(crate) fn context(&self) -> Option<Arc<Context>> {
        self.audited.as_ref().map(|audited| audited.context.clone())
    }

    /// Records that the request failed.
    pub(crate) fn fail(&mut self, status: &Status, panic: Option<&str>) {
        let Some(audited) = &mut self.audited else { return };
        audited.event.response = Some(match panic {
            Some(message) => ResponseStatus::panicked(message),
            None => status.into(),
        });
        if panic.is_some() {
            audited.progress = Progress::Finished;
            audited.record_detached(Stage::Panic);
        } else if audited.context.wants_response_object() {
            audited.event.response_object = Some(audited.context.encode(&status.to_value()));
        }
    }

    /// Records the result, and the response's object if the policy asks for it. Must see the body before it is
    /// compressed.
    pub(crate) fn capture(&mut self, response: Response<Body>) -> Response<Body> {
        let Some(audited) = &mut self.audited else { return response };
        if audited.event.response.is_some() {
            return response;
        }
        let code = response.status().as_u16();
        let object = Object::of(&response);
        let wanted = audited.context.wants_response_object();
        // A read that succeeds never answers with a Status.
        let writes = !audited.event.attributes.verb.is_read_only();
        let body = match response.body() {
            Body::Full(Some(body)) => Some(body.clone()),
            _ => None,
        };
        if let Some(body) = body.filter(|body| wanted || writes && object.may_be_status(body)) {
            let value = object.decode(&body);
            audited.event.response = value.as_ref().and_then(|value| ResponseStatus::of_object(value, code));
            if wanted {
                audited.event.response_object = value.map(|value| audited.context.encode(&value));
            }
        }
        if audited.event.response.is_none() {
            audited.event.response = Some(ResponseStatus::code(code));
        }
        let is_stream = matches!(response.body(), Body::Stream(_));
        if !wanted || !is_stream || object == Object::None || audited.event.attributes.is_long_running() {
            return response;
        }
        let captured = Arc::new(Mutex::new(Captured { object, bytes: Vec::new(), is_whole: true }));
        audited.captured = Some(captured.clone());
        response.map(|body| Body::Wrapped(Box::new(Capture { body, captured })))
    }

    /// Sends the events of the response. That of a stream is sent when it ends.
    pub(crate) async fn complete(mut self, response: Response<Body>) -> Response<Body> {
        let Some(mut audited) = self.audited.take() else { return response };
        match audited.progress {
            Progress::Finished => return response,
            Progress::Refused => {
                audited.progress = Progress::Finished;
                audited.record(Stage::ResponseStarted).await;
                return response;
            }
            Progress::Running => {}
        }
        if audited.event.attributes.is_long_running() {
            audited.record(Stage::ResponseStarted).await;
        }
        if response.body().exact_length().is_some() {
            audited.finish().await;
            return response;
        }
        response.map(|body| Body::Wrapped(Box::new(AuditedBody { body, _audited: audited })))
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

impl Audited {
    async fn record(&self, stage: Stage) -> bool {
        if self.verdict.omit_stages.contains(stage) {
            return true;
        }
        let delivery = match stage {
            // A read changes nothing: that it was received need not be written before it is handled.
            Stage::RequestReceived if self.event.attributes.verb.is_read_only() => Delivery::Detached,
            Stage::RequestReceived => Delivery::Awaited,
            _ => self.delivery,
        };
        self.auditor.record(&self.event, stage, now(), delivery).await
    }

    fn record_detached(&self, stage: Stage) {
        if !self.verdict.omit_stages.contains(stage) {
            self.auditor.record_detached(&self.event, stage, now());
        }
    }

    async fn finish(&mut self) {
        self.progress = Progress::Finished;
        self.gather();
        self.record(Stage::ResponseComplete).await;
    }

    /// Completes the event with what handlers and the body added.
    fn gather(&mut self) {
        if let Some(captured) = self.captured.take() {
            let captured = captured.lock().unwrap_or_else(PoisonError::into_inner);
            match captured.is_whole {
                true => {
                    let value = captured.object.decode(&captured.bytes);
                    self.event.response_object = value.map(|value| self.context.encode(&value));
                }
                false => self.event.annotations.add(TRUNCATED, "true"),
            }
        }
        self.auditor.complete(&mut self.event, &self.context);
        let latency = self.started.elapsed();
        if latency > LATENCY_MIN && !self.event.attributes.is_long_running() {
            let seconds = format!("{}s", latency.as_secs_f64());
            self.event.annotations.add("apiserver.latency.k8s.io/total", seconds);
        }
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        if self.progress == Progress::Finished {
            return;
        }
        self.event.response.get_or_insert_with(ResponseStatus::closed_early);
        self.gather();
        self.record_detached(match self.progress {
            Progress::Refused => Stage::ResponseStarted,
            _ => Stage::ResponseComplete,
        });
    }
}

/// A body whose end is the end of its request.
#[derive(Debug)]
struct AuditedBody {
    body: Body,
    /// Sends its event when it is dropped.
    _audited: Box<Audited>,
}

impl BodyWrapper for AuditedBody {
    fn inner_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    fn poll_frame(&mut self, cx: &mut Task<'_>) -> PolledFrame {
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

// === Objects of responses ===

/// Encoding of the object in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    /// No object: a page, a log, a watch.
    None,
    Json,
    Yaml,
    Protobuf,
}

impl Object {
    fn of(response: &Response<Body>) -> Self {
        let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        match media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim() {
            "application/json" => Self::Json,
            "application/yaml" => Self::Yaml,
            protobuf::MEDIA_TYPE => Self::Protobuf,
            _ => Self::None,
        }
    }

    /// Returns true if a short body may be a Status.
    fn may_be_status(self, body: &[u8]) -> bool {
        const LONGEST: usize = 2 << 10;
        self != Self::None && body.len() <= LONGEST && body.windows(6).any(|word| word == b"Status")
    }

    /// Decodes the object; `None` if there is none.
    fn decode(self, body: &[u8]) -> Option<Value> {
        let value = match self {
            Self::None => None,
            Self::Json => serde_json::from_slice(body).ok(),
            Self::Yaml => orlop_api::decode::yaml(body).ok().map(|decoded| decoded.value),
            Self::Protobuf => protobuf::decode(body).ok(),
        };
        value.filter(|value: &Value| value.get("kind").is_some())
    }
}

/// The start of a streamed body.
#[derive(Debug)]
struct Captured {
    object: Object,
    bytes: Vec<u8>,
    /// False if the body is larger than what is recorded.
    is_whole: bool,
}

impl Captured {
    fn add(&mut self, data: &Bytes) {
        self.is_whole &= self.bytes.len() + data.len() <= OBJECT_BYTES_MAX;
        if self.is_whole {
            self.bytes.extend_from_slice(data);
        } else {
            self.bytes = Vec::new();
        }
    }
}

/// A body that is recorded while it is sent.
#[derive(Debug)]
struct Capture {
    body: Body,
    captured: Arc<Mutex<Captured>>,
}

impl BodyWrapper for Capture {
    fn inner_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    fn poll_frame(&mut self, cx: &mut Task<'_>) -> PolledFrame {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.captured.lock().unwrap_or_else(PoisonError::into_inner).add(data);
        }
        polled
    }
}
