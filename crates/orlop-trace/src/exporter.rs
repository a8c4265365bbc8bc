//! Sends spans to a collector in batches. A full queue drops spans and counts them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::uri::PathAndQuery;
use orlop_grpc::{Target, connect_lazy};
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};
use tonic::{
    Request,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use crate::otlp::{
    AnyValue, AnyValueKind, ExportRequest, ExportResponse, KeyValue, Resource, ResourceSpans, Scope,
    ScopeSpans, SpanData,
};

/// Spans that may wait for the collector, and spans of a batch.
const QUEUE_SPANS: usize = 2048;
const BATCH_SPANS: usize = 512;
/// Longest time that a span waits for others.
const BATCH_WAIT: Duration = Duration::from_secs(5);
/// Time of one attempt.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// A queue of spans to a collector.
#[derive(Debug)]
pub struct Exporter {
    queue: mpsc::Sender<SpanData>,
    dropped: Arc<AtomicU64>,
    _task: JoinHandle<()>,
}

impl Exporter {
    /// Starts to export to `host:port` or `unix:///path`. The collector need not run yet.
    pub fn start(endpoint: &str, instance: &str) -> Result<Self, String> {
        let channel = channel(endpoint)?;
        let (queue, spans) = mpsc::channel(QUEUE_SPANS);
        let resource = Resource {
            attributes: vec![text("service.name", "apiserver"), text("service.instance.id", instance)],
        };
        let dropped = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(export(channel, resource, spans, dropped.clone()));
        Ok(Self { queue, dropped, _task: task })
    }

    pub(crate) fn offer(&self, span: SpanData) {
        if self.queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of spans that were lost.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(AnyValueKind::Text(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value) }
}

fn channel(endpoint: &str) -> Result<Channel, String> {
    if let Some(path) = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:")) {
        return Ok(connect_lazy(&Endpoint::from_static("http://localhost"), Target::Unix(path.into())));
    }
    let host = endpoint.strip_prefix("dns://").unwrap_or(endpoint).trim_start_matches('/');
    let endpoint = Endpoint::from_shared(format!("http://{host}"));
    let endpoint = endpoint.map_err(|error| format!("cannot trace to {host:?}: {error}"))?;
    Ok(connect_lazy(&endpoint.connect_timeout(EXPORT_TIMEOUT), Target::Address))
}

async fn export(
    channel: Channel,
    resource: Resource,
    mut spans: mpsc::Receiver<SpanData>,
    dropped: Arc<AtomicU64>,
) {
    let mut failing = false;
    loop {
        let mut batch = Vec::new();
        let Some(first) = spans.recv().await else { return };
        batch.push(first);
        let deadline = Instant::now() + BATCH_WAIT;
        while batch.len() < BATCH_SPANS {
            match tokio::time::timeout_at(deadline, spans.recv()).await {
                Ok(Some(span)) => batch.push(span),
                Ok(None) | Err(_) => break,
            }
        }
        let count = batch.len() as u64;
        let sent = tokio::time::timeout(EXPORT_TIMEOUT, send(&channel, &resource, batch)).await;
        let error = match sent {
            Ok(Ok(())) => None,
            Ok(Err(status)) => Some(status.message().to_owned()),
            Err(_) => Some("timeout".to_owned()),
        };
        if let Some(error) = &error {
            dropped.fetch_add(count, Ordering::Relaxed);
            // Once for each outage.
            if !failing {
                tracing::warn!(error, "traces cannot be exported");
            }
        }
        failing = error.is_some();
    }
}

async fn send(channel: &Channel, resource: &Resource, spans: Vec<SpanData>) -> Result<(), tonic::Status> {
    let scope = Scope { name: "orlop".to_owned() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    let resource_spans = vec![ResourceSpans { resource: Some(resource.clone()), scope_spans }];
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let codec = ProstCodec::<ExportRequest, ExportResponse>::default();
    grpc.unary(Request::new(ExportRequest { resource_spans }), path, codec).await.map(drop)
}
