//! The resource metrics API (`metrics.k8s.io`): what metrics-server is on a cluster.
//!
//! Every node is asked for `/metrics/resource` through the API server, and answers are made from the difference of the last
//! two scrapes. It is an extension API server: the API server authorizes a request before it passes it on, so that only its
//! client certificate is let in here.
//!
//! Layers, each importing only those before it: `exposition` → `samples` (pure) → `answers`, `registration` → this file.

mod answers;
mod exposition;
mod registration;
mod samples;

pub use registration::SERVER_NAME;

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, future::BoxFuture, stream};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use orlop_client::{Api, Client, ResourceExt, api::ListParams};
use orlop_net::{
    AcceptOptions, ClientCertificate, Connection, HttpOptions, ServerTls, accept, http::serve_connection,
};
use rustls::pki_types::UnixTime;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::samples::Samples;

/// Interval of scrapes.
const INTERVAL: Duration = Duration::from_secs(10);
/// Limit on the answer of a node.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);
/// Nodes that are asked at a time.
const CONCURRENCY: usize = 8;
/// Delay before the registration is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Bytes of a node's metrics.
const BYTES_MAX: usize = 64 << 20;
const DRAIN: Duration = Duration::from_secs(1);

/// Samples that the scraper and the server share.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedSamples(Arc<Mutex<Samples>>);

impl SharedSamples {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Samples> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the API until `stop`, then takes its registration back. `ca` is the CA of the serving certificate, PEM; TLS must ask
/// for the API server's client certificate.
pub fn run(
    client: Client,
    listener: TcpListener,
    tls: ServerTls,
    ca: String,
    stop: impl Future<Output = ()> + Send + 'static,
) -> BoxFuture<'static, io::Result<()>> {
    Box::pin(run_until(client, listener, tls, ca, Box::pin(stop)))
}

async fn run_until(
    client: Client,
    listener: TcpListener,
    tls: ServerTls,
    ca: String,
    stop: BoxFuture<'static, ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let samples = SharedSamples::default();
    let options = AcceptOptions { tls: Some(tls), drain_timeout: DRAIN, ..AcceptOptions::default() };
    let (serving_client, serving_samples) = (client.clone(), samples.clone());
    let serving = accept(listener.into(), options, stop, move |connection: Connection, watcher| {
        let (client, samples) = (serving_client.clone(), serving_samples.clone());
        async move {
            let peer = connection.tls.as_ref().map(|session| session.client.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (client, samples) = (client.clone(), samples.clone());
                // For each request: the CA may be replaced while the connection is open.
                let is_api_server = peer.as_ref().is_some_and(is_verified);
                async move { Ok::<_, Infallible>(respond(&client, samples, is_api_server, &request).await) }
            });
            serve_connection(connection.stream, &HttpOptions::default(), service, watcher).await;
        }
    });
    let working = work(client.clone(), samples, address, ca);
    tokio::select! {
        () = serving => {}
        () = working => {}
    }
    if let Ok(Err(error)) = timeout(RETRY, registration::unregister(client)).await {
        tracing::warn!(%error, "cannot take the registration of metrics.k8s.io back");
    }
    Ok(())
}

/// Registers the API, then asks nodes for ever.
async fn work(client: Client, samples: SharedSamples, address: SocketAddr, ca: String) {
    loop {
        match registration::register(client.clone(), address, ca.clone()).await {
            Ok(true) => break,
            Ok(false) => {
                tracing::info!("metrics.k8s.io is served by another: that of this server is not registered");
                break;
            }
            Err(error) => tracing::warn!(%error, "cannot register metrics.k8s.io; trying again"),
        }
        tokio::time::sleep(RETRY).await;
    }
    loop {
        if let Err(error) = scrape(&client, samples.clone()).await {
            tracing::warn!(%error, "cannot list nodes for their metrics");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Takes a registration back that an earlier process of this machine left, if nobody serves it any more: discovery and with it
/// the deletion of namespaces would wait for it.
pub async fn remove_stale_registration(client: &Client) {
    let removed = async {
        match registration::address(client.clone()).await? {
            Some(address) if TcpStream::connect(address).await.is_err() => {
                registration::unregister(client.clone()).await
            }
            _ => Ok(()),
        }
    };
    if let Ok(Err::<(), orlop_client::Error>(error)) = timeout(RETRY, removed).await {
        tracing::debug!(%error, "cannot look for a registration of metrics.k8s.io");
    }
}

/// Asks all nodes for their counters.
async fn scrape(client: &Client, samples: SharedSamples) -> orlop_client::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let names: BTreeSet<String> =
        nodes.list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
    samples.lock().retain(&names);
    let mut scrapes = Vec::new();
    for name in names {
        scrapes.push(scrape_into(client.clone(), samples.clone(), name));
    }
    let mut scrapes = stream::iter(scrapes).buffer_unordered(CONCURRENCY);
    while scrapes.next().await.is_some() {}
    Ok(())
}

/// Asks a node for its counters, and adds them to the samples.
fn scrape_into(client: Client, samples: SharedSamples, name: String) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        match timeout(SCRAPE_TIMEOUT, scrape_node(&client, &name)).await {
            Ok(Ok(scrape)) => samples.lock().add(&name, Timestamp::now(), scrape),
            Ok(Err(error)) => tracing::debug!(%error, node = name, "cannot read the metrics of a node"),
            Err(_) => tracing::debug!(node = name, "a node does not answer with its metrics"),
        }
    })
}

async fn scrape_node(client: &Client, name: &str) -> orlop_client::Result<exposition::Scrape> {
    let path = format!("/api/v1/nodes/{name}/proxy/metrics/resource");
    let request = Request::get(path).body(Vec::new()).map_err(orlop_client::Error::HttpError)?;
    let mut body = client.send(request).await?.into_body();
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(orlop_client::Error::ReadBody)?.into_data() else { continue };
        if text.len() + data.len() > BYTES_MAX {
            return Err(orlop_client::Error::Service("the metrics of the node are too large".into()));
        }
        text.extend_from_slice(&data);
    }
    Ok(exposition::parse(&String::from_utf8_lossy(&text)))
}

/// Returns true for the client certificate of an API server.
fn is_verified(certificate: &ClientCertificate) -> bool {
    match certificate {
        ClientCertificate::Absent => false,
        ClientCertificate::Verified(_) => true,
        ClientCertificate::Presented(presented) => {
            presented.verifier.verify(&presented.chain, UnixTime::now()).is_ok()
        }
    }
}

async fn respond(
    client: &Client,
    samples: SharedSamples,
    is_api_server: bool,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    let uri = request.uri();
    if !is_api_server {
        return refusal(401, "Unauthorized", "only API servers of this cluster may ask");
    }
    if request.method() != Method::GET {
        return refusal(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
    }
    match answers::answer(
        client.clone(),
        samples,
        uri.path().to_owned(),
        uri.query().unwrap_or_default().to_owned(),
    )
    .await
    {
        Ok(value) => response(StatusCode::OK, &value),
        Err((404, message)) => refusal(404, "NotFound", &message),
        Err((code, message)) => refusal(code, "InternalError", &message),
    }
}

fn refusal(code: u16, reason: &str, message: &str) -> Response<Full<Bytes>> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code});
    response(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &status)
}

fn response(code: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
