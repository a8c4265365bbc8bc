//! `/metrics` and `/version` over HTTP.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use orlop_net::{AcceptOptions, ConnectionLimit, HttpOptions, Listener, accept, http::serve_connection};

use super::{build_info, metrics::Metrics};

const CONNECTIONS_MAX: usize = 64;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_BYTES_MAX: u32 = 4 << 10;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until it is dropped.
pub(crate) async fn serve(listener: Listener, metrics: Arc<Metrics>) {
    let options = AcceptOptions { limit: ConnectionLimit::new(CONNECTIONS_MAX), ..AcceptOptions::default() };
    let http = Arc::new(HttpOptions {
        header_timeout: HEADER_TIMEOUT,
        header_bytes_max: HEADER_BYTES_MAX,
        ..HttpOptions::default()
    });
    accept(listener, options, std::future::pending(), move |connection, watcher| {
        let (http, metrics) = (http.clone(), metrics.clone());
        async move {
            let service = service_fn(move |request| {
                let response = respond(&request, &metrics);
                async move { Ok::<_, Infallible>(response) }
            });
            serve_connection(connection.stream, &http, service, watcher).await;
        }
    })
    .await;
}

fn respond(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, content_type, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, OPEN_METRICS, metrics.text()),
        (&Method::GET | &Method::HEAD, "/version") => {
            (StatusCode::OK, "application/json", build_info::json())
        }
        (_, "/metrics" | "/version") => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "method not allowed\n".to_owned())
        }
        _ => (StatusCode::NOT_FOUND, "text/plain", "not found: try /metrics or /version\n".to_owned()),
    };
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}
