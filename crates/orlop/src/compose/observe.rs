//! `/metrics`, `/healthz` and `/readyz` of the controller, in plain HTTP.

use std::{convert::Infallible, sync::Arc};

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use orlop_net::{
    AcceptOptions, Address, Listener, UnixSocketOptions, accept,
    http::{HttpOptions, serve_connection},
};
use prometheus_client::{encoding::text::encode, registry::Registry};

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves an address until the process ends. Returns once it listens.
pub(super) async fn serve(address: &Address, registry: Arc<Registry>) -> anyhow::Result<()> {
    let listener = Listener::bind(address, &UnixSocketOptions::default())
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    let http = Arc::new(HttpOptions::default());
    tokio::spawn(async move {
        accept(listener, AcceptOptions::default(), std::future::pending(), move |connection, watcher| {
            let (http, registry) = (http.clone(), registry.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let response = answer(request.uri().path(), &registry);
                async move { Ok::<_, Infallible>(response) }
            });
            async move { serve_connection(connection.stream, &http, service, watcher).await }
        })
        .await;
    });
    Ok(())
}

fn answer(path: &str, registry: &Registry) -> Response<Full<Bytes>> {
    let (code, kind, body) = match path {
        // The process answers, so it lives; candidates that do not lead are ready to.
        "/healthz" | "/readyz" | "/livez" => (200, "text/plain; charset=utf-8", "ok".to_owned()),
        "/metrics" => {
            let mut text = String::new();
            match encode(&mut text, registry) {
                Ok(()) => (200, METRICS_TYPE, text),
                Err(error) => (500, "text/plain; charset=utf-8", error.to_string()),
            }
        }
        _ => (404, "text/plain; charset=utf-8", "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_and_metrics_are_served_and_nothing_else() {
        let mut registry = Registry::default();
        orlop_compose::Metrics::default().register(&mut registry);
        let code = |path: &str| answer(path, &registry).status().as_u16();
        assert_eq!(["/healthz", "/readyz", "/metrics", "/"].map(code), [200, 200, 200, 404]);
    }
}
