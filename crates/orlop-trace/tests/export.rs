//! Spans arrive at a collector over OTLP.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use orlop_trace::{Exporter, Tracer, current, in_span};
use tokio::{net::UnixListener, sync::mpsc};

/// Starts a collector. Returns its endpoint and the bodies that it receives.
fn collector(folder: &std::path::Path) -> (String, mpsc::UnboundedReceiver<Bytes>) {
    let path = folder.join("otlp.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (received, bodies) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let received = received.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request: http::Request<Incoming>| {
                    let received = received.clone();
                    async move {
                        let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
                        assert_eq!(request.uri().path(), path);
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        received.send(body).unwrap();
                        let trailers = async {
                            let mut trailers = HeaderMap::new();
                            trailers.insert("grpc-status", HeaderValue::from_static("0"));
                            Some(Ok::<_, Infallible>(trailers))
                        };
                        let body = Full::new(Bytes::from_static(&[0, 0, 0, 0, 0])).with_trailers(trailers);
                        Ok::<_, Infallible>(
                            Response::builder()
                                .header("content-type", "application/grpc")
                                .body(body)
                                .unwrap(),
                        )
                    }
                });
                let io = TokioIo::new(socket);
                let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
            });
        }
    });
    (format!("unix://{}", path.display()), bodies)
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|window| window == text)
}

#[tokio::test]
async fn spans_of_a_trusted_trace_are_exported_with_their_parents() {
    let folder = tempfile::tempdir().unwrap();
    let (endpoint, mut bodies) = collector(folder.path());
    let tracer = Arc::new(Tracer::new(Exporter::start(&endpoint, "test").unwrap(), 0));
    let mut headers = HeaderMap::new();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    headers.insert("traceparent", HeaderValue::from_static(parent));
    assert!(
        tracer.start(&headers, false, "GET", Instant::now()).is_none(),
        "not trusted, and nothing is sampled"
    );
    assert!(tracer.start(&HeaderMap::new(), true, "GET", Instant::now()).is_none());
    let mut root = tracer.start(&headers, true, "GET /api/v1/pods", Instant::now()).unwrap();
    root.set("http.response.status_code", 200_i64);
    assert!(current().is_none());
    let traceparent = root
        .active()
        .scope(in_span("List", || vec![("gvk", "v1, Kind=Pod".into()), ("limit", 5_i64.into())], async {
            current().unwrap().traceparent()
        }))
        .await;
    assert!(traceparent.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && traceparent.ends_with("-01"));
    root.fail("it failed");
    drop(root);
    let body = tokio::time::timeout(Duration::from_secs(20), bodies.recv()).await.unwrap().unwrap();
    let trace = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
    let parts: [&[u8]; 8] = [
        b"GET /api/v1/pods",
        b"List",
        b"gvk",
        b"v1, Kind=Pod",
        b"it failed",
        b"service.name",
        &trace,
        &0x00f0_67aa_0ba9_02b7_u64.to_be_bytes(),
    ];
    for part in parts {
        assert!(contains(&body, part), "{part:?}");
    }
    let child = &traceparent.split('-').nth(2).unwrap();
    assert!(contains(&body, &u64::from_str_radix(child, 16).unwrap().to_be_bytes()));
}

#[tokio::test]
async fn absent_collector_drops_spans_and_delays_nobody() {
    let exporter = Exporter::start("unix:///nonexistent/otlp.sock", "test").unwrap();
    let tracer = Arc::new(Tracer::new(exporter, 1_000_000));
    let started = Instant::now();
    for _ in 0..10_000 {
        drop(tracer.start(&HeaderMap::new(), true, "GET", Instant::now()).unwrap());
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(tracer.dropped() > 0);
    assert!(Exporter::start("not a host", "test").is_err());
}

#[tokio::test]
async fn work_without_a_trace_just_runs() {
    let result = in_span("x", || unreachable!("no attributes are made"), async { 5 }).await;
    assert_eq!(result, 5);
}
