//! Spans, and the current span of a task.

use std::{
    borrow::Cow,
    fmt,
    pin::pin,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use http::HeaderMap;

use crate::{
    context::{SpanContext, TRACEPARENT},
    exporter::Exporter,
    otlp::{AnyValue, AnyValueKind, KeyValue, SpanData, SpanStatus},
};

const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const ERROR: i32 = 2;

tokio::task_local! {
    static CURRENT: Active;
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(Cow<'static, str>),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

/// Starts spans of requests.
#[derive(Debug)]
pub struct Tracer {
    exporter: Exporter,
    sampling_rate_per_million: u32,
}

impl Tracer {
    /// Returns a tracer of a part of all requests, and of those whose client traces them.
    pub fn new(exporter: Exporter, sampling_rate_per_million: u32) -> Self {
        Self { exporter, sampling_rate_per_million }
    }

    /// Starts the span of a request; `None` if it is not sampled. The trace of a client that is not trusted is not
    /// continued: it could otherwise have every request of its traced.
    pub fn start(
        self: &Arc<Self>,
        headers: &HeaderMap,
        is_trusted: bool,
        name: impl Into<Cow<'static, str>>,
        started: Instant,
    ) -> Option<Span> {
        let header = headers.get(TRACEPARENT).filter(|_| is_trusted);
        let parent = header.and_then(|header| SpanContext::parse(header.to_str().ok()?));
        let sampled = match parent {
            Some(parent) => parent.sampled,
            None => rand::random_range(0..1_000_000) < self.sampling_rate_per_million,
        };
        if !sampled {
            return None;
        }
        let trace_id = parent.map_or_else(|| rand::random::<u128>().max(1), |parent| parent.trace_id);
        let parent = parent.map(|parent| parent.span_id);
        Some(Span::new(self.clone(), trace_id, parent, name.into(), SERVER, started))
    }

    /// Returns the number of spans that were lost.
    pub fn dropped(&self) -> u64 {
        self.exporter.dropped()
    }
}

/// A span. It ends when it is dropped.
pub struct Span {
    tracer: Arc<Tracer>,
    context: SpanContext,
    parent: Option<u64>,
    name: Cow<'static, str>,
    kind: i32,
    started: Instant,
    attributes: Vec<(Cow<'static, str>, Value)>,
    error: Option<String>,
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Span")
            .field("name", &self.name)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

impl Span {
    fn new(
        tracer: Arc<Tracer>,
        trace_id: u128,
        parent: Option<u64>,
        name: Cow<'static, str>,
        kind: i32,
        started: Instant,
    ) -> Self {
        let context = SpanContext { trace_id, span_id: rand::random::<u64>().max(1), sampled: true };
        Self { tracer, context, parent, name, kind, started, attributes: Vec::new(), error: None }
    }

    /// Sets an attribute.
    pub fn set(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Value>) {
        self.attributes.push((key.into(), value.into()));
    }

    /// Marks the span as failed.
    pub fn fail(&mut self, message: impl Into<String>) {
        self.error = Some(message.into());
    }

    /// Returns the span as the parent of others.
    pub fn active(&self) -> Active {
        Active { tracer: self.tracer.clone(), context: self.context }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let (now, unix) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let end = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
        let took = u64::try_from(now.duration_since(self.started).as_nanos()).unwrap_or(u64::MAX);
        let attribute = |(key, value): (Cow<'static, str>, Value)| {
            let value = match value {
                Value::Text(text) => AnyValueKind::Text(text.into_owned()),
                Value::Bool(value) => AnyValueKind::Bool(value),
                Value::Int(value) => AnyValueKind::Int(value),
            };
            KeyValue { key: key.into_owned(), value: Some(AnyValue { value: Some(value) }) }
        };
        self.tracer.exporter.offer(SpanData {
            trace_id: self.context.trace_id.to_be_bytes().to_vec(),
            span_id: self.context.span_id.to_be_bytes().to_vec(),
            parent_span_id: self.parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
            name: std::mem::take(&mut self.name).into_owned(),
            kind: self.kind,
            start_time_unix_nano: end.saturating_sub(took),
            end_time_unix_nano: end,
            attributes: std::mem::take(&mut self.attributes).into_iter().map(attribute).collect(),
            status: self.error.take().map(|message| SpanStatus { message, code: ERROR }),
        });
    }
}

/// A span under which others can be started.
#[derive(Clone)]
pub struct Active {
    tracer: Arc<Tracer>,
    context: SpanContext,
}

impl fmt::Debug for Active {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Active").field(&self.context).finish()
    }
}

impl Active {
    /// Starts a span below this one.
    pub fn child(&self, name: &'static str, started: Instant) -> Span {
        let (trace, parent) = (self.context.trace_id, Some(self.context.span_id));
        Span::new(self.tracer.clone(), trace, parent, Cow::Borrowed(name), INTERNAL, started)
    }

    /// Returns the traceparent header for requests that this one makes.
    pub fn traceparent(&self) -> String {
        self.context.traceparent()
    }

    /// Runs work below this span.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }
}

/// Returns the current span of the task, if it is traced.
pub fn current() -> Option<Active> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Runs work in a span below the current one; just runs it if there is none.
pub async fn in_span<F: Future>(
    name: &'static str,
    attributes: impl FnOnce() -> Vec<(&'static str, Value)>,
    work: F,
) -> F::Output {
    // Pinned here: each move of a future copies all of it.
    let work = pin!(work);
    let Some(active) = current() else { return work.await };
    let mut span = active.child(name, Instant::now());
    for (key, value) in attributes() {
        span.set(key, value);
    }
    let result = span.active().scope(work).await;
    drop(span);
    result
}
