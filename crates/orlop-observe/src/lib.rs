//! `/metrics`, `/healthz`, `/livez` and `/readyz` of a controller, in plain HTTP.

use std::{convert::Infallible, io, sync::Arc};

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
const TEXT: &str = "text/plain; charset=utf-8";

/// Says whether a controller is ready.
pub type IsReady = Arc<dyn Fn() -> bool + Send + Sync>;

/// Serves an address until the process ends. Returns once it listens.
pub async fn serve(address: &Address, registry: Arc<Registry>, is_ready: IsReady) -> io::Result<()> {
    let listener = Listener::bind(address, &UnixSocketOptions::default()).await?;
    let http = Arc::new(HttpOptions::default());
    tokio::spawn(async move {
        accept(listener, AcceptOptions::default(), std::future::pending(), move |connection, watcher| {
            let (http, registry, is_ready) = (http.clone(), registry.clone(), is_ready.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let response = answer(request.uri().path(), &registry, &is_ready);
                async move { Ok::<_, Infallible>(response) }
            });
            async move { serve_connection(connection.stream, &http, service, watcher).await }
        })
        .await;
    });
    Ok(())
}

fn answer(path: &str, registry: &Registry, is_ready: &IsReady) -> Response<Full<Bytes>> {
    let (code, kind, body) = match path {
        // The process answers, so it lives.
        "/healthz" | "/livez" => (200, TEXT, "ok".to_owned()),
        "/readyz" if is_ready() => (200, TEXT, "ok".to_owned()),
        "/readyz" => (503, TEXT, "not ready\n".to_owned()),
        "/metrics" => {
            let mut text = String::new();
            match encode(&mut text, registry) {
                Ok(()) => (200, METRICS_TYPE, text),
                Err(error) => (500, TEXT, error.to_string()),
            }
        }
        _ => (404, TEXT, "404 page not found\n".to_owned()),
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
        let codes = |is_ready: bool| {
            let is_ready: IsReady = Arc::new(move || is_ready);
            ["/healthz", "/livez", "/readyz", "/metrics", "/"]
                .map(|path| answer(path, &Registry::default(), &is_ready).status().as_u16())
        };
        assert_eq!(codes(true), [200, 200, 200, 200, 404]);
        assert_eq!(codes(false), [200, 200, 503, 200, 404]);
    }
}
