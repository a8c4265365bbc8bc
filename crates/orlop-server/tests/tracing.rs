//! Spans of requests, as a collector receives them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use orlop_server::chain::Chain;
use orlop_trace::{Exporter, Tracer};
use support::{ask, call, config_map, server, whole};
use tokio::{net::UnixListener, sync::mpsc};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server that traces to a collector, and the collector's requests.
async fn traced(rate_per_million: u32) -> (Chain, mpsc::UnboundedReceiver<Bytes>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("otlp.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (received, bodies) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let received = received.clone();
            let service = service_fn(move |request: http::Request<Incoming>| {
                let received = received.clone();
                async move {
                    received.send(request.into_body().collect().await.unwrap().to_bytes()).unwrap();
                    let trailers = async {
                        let status = ("grpc-status".parse().unwrap(), HeaderValue::from_static("0"));
                        Some(Ok::<_, Infallible>(HeaderMap::from_iter([status])))
                    };
                    let body = Full::new(Bytes::from_static(&[0; 5])).with_trailers(trailers);
                    let response = Response::builder().header("content-type", "application/grpc").body(body);
                    Ok::<_, Infallible>(response.unwrap())
                }
            });
            tokio::spawn(async move {
                let io = TokioIo::new(socket);
                let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
            });
        }
    });
    let exporter = Exporter::start(&format!("unix://{}", path.display()), "test").unwrap();
    let chain = server().await.0.with_tracer(Some(Arc::new(Tracer::new(exporter, rate_per_million))));
    (chain, bodies, folder)
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|window| window == text)
}

#[tokio::test]
async fn request_is_traced_through_filters_verb_and_store() {
    let (chain, mut bodies, _folder) = traced(0).await;
    let parent = [("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")];
    assert_eq!(call(&chain, "GET", CONFIG_MAPS, None).await.0, 200, "not sampled");
    let list = format!("{CONFIG_MAPS}?limit=5&labelSelector=a%3Db");
    whole(ask(&chain, "GET", &list, &parent, "").await).await;
    let headers = [parent[0], ("content-type", "application/json")];
    let created = config_map("a-name", &serde_json::json!({})).to_string();
    assert_eq!(whole(ask(&chain, "POST", CONFIG_MAPS, &headers, created).await).await.0, 201);
    let body = tokio::time::timeout(Duration::from_secs(30), bodies.recv()).await.unwrap().unwrap();
    let trace = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
    let parts: [&[u8]; 12] = [
        &trace,
        b"GET /api/v1/namespaces/{:namespace}/configmaps",
        b"POST /api/v1/namespaces/{:namespace}/configmaps",
        b"http.response.status_code",
        b"authentication",
        b"authorization",
        b"List",
        b"hasLabelSelector",
        b"gvk",
        b"Create",
        b"store transaction",
        b"apiserver",
    ];
    for part in parts {
        assert!(contains(&body, part), "{}", part.escape_ascii());
    }
    assert!(!contains(&body, b"a-name") && !contains(&body, b"a%3Db"), "names and selectors are left out");
}
