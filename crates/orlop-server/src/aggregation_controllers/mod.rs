//! Controllers of APIServices, as in Kubernetes' kube-aggregator.
//!
//! - [`registration`]: keeps an APIService for every group version that the server itself serves;
//! - [`worker`]: per extension API server, checks its availability and fetches its documents;
//! - [`documents`]: discovery and OpenAPI documents of one server;
//! - [`service`]: follows a Service and its endpoints.
//!
//! They write through the chain, like any client.

mod documents;
mod registration;
mod service;
mod worker;

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::Request;
use orlop_aggregator::{
    ApiService, BackendKey,
    api_service::{Availability, GROUP, RESOURCE, VERSION},
    availability,
};
use orlop_api::{status::Status, user::UserInfo};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{chain::Chain, object::now};
use registration::Registrar;

/// Steps of the start, by the names of Kubernetes' health checks.
pub(crate) const STEPS: [&str; 2] = ["apiservice-registration-controller", "kube-apiserver-autoregistration"];
/// Pause before a write that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Loads the APIServices, registers the server's own, and keeps all until the cluster is closed.
pub(crate) async fn start(chain: &Chain) -> Result<(), Status> {
    let cluster = chain.cluster();
    cluster.aggregator.load().await?;
    chain.done(STEPS[0]);
    let mut registrar = Registrar::new(chain.clone());
    if registrar.reconcile().await.is_ok() {
        chain.done(STEPS[1]);
    }
    let metrics = cluster.aggregator.metrics.clone();
    chain.add_metrics(Box::new(move |registry| metrics.register(registry)));
    let closing = cluster.closing();
    let running = run(chain.clone(), registrar);
    tokio::spawn(async move {
        tokio::select! {
            () = running => {}
            () = closing => {}
        }
    });
    Ok(())
}

async fn run(chain: Chain, mut registrar: Registrar) {
    let cluster = chain.cluster().clone();
    let mut catalogs = cluster.aggregator.changes();
    let mut definitions = cluster.definitions.changes();
    let mut workers: HashMap<BackendKey, Worker> = HashMap::new();
    loop {
        catalogs.mark_unchanged();
        definitions.mark_unchanged();
        let is_done = registrar.reconcile().await.is_ok() && keep_local_available(&chain).await;
        if is_done {
            chain.done(STEPS[1]);
        }
        let catalog = cluster.aggregator.catalog().clone();
        cluster.aggregator.metrics.retain(|name| catalog.services().contains_key(name));
        workers.retain(|key, _| catalog.backends().any(|backend| backend.key == *key));
        for backend in catalog.backends() {
            workers
                .entry(backend.key.clone())
                .or_insert_with(|| Worker(tokio::spawn(worker::run(chain.clone(), backend.clone()))));
        }
        tokio::select! {
            changed = catalogs.changed() => if changed.is_err() { return },
            changed = definitions.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(RETRY_PAUSE), if !is_done => {}
        }
    }
}

/// A task that ends with its handle.
struct Worker(JoinHandle<()>);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Marks APIServices without a Service as available. Returns false if a write failed.
async fn keep_local_available(chain: &Chain) -> bool {
    let catalog = chain.cluster().aggregator.catalog().clone();
    let mut is_done = true;
    for service in catalog.services().values().filter(|service| service.backend.is_none()) {
        is_done &= set_availability(chain, service, &availability::local()).await.is_ok();
    }
    is_done
}

/// Writes the Available condition of an APIService, if it changed.
async fn set_availability(chain: &Chain, service: &Arc<ApiService>, found: &Availability) -> Result<(), u16> {
    let metrics = &chain.cluster().aggregator.metrics;
    let is_available = found.status == "True";
    metrics.set(&service.name, is_available);
    let Some(status) = availability::status(service, found, &now().to_string()) else { return Ok(()) };
    let path = format!("{}/status", path(&service.name));
    send(chain, "PATCH", &path, &json!({"status": status})).await?;
    if service.is_available() != is_available {
        tracing::info!(
            name = service.name,
            status = found.status,
            reason = found.reason,
            message = found.message,
            "changed the availability of an APIService"
        );
        if !is_available {
            metrics.count_unavailable(&service.name, &found.reason);
        }
    }
    Ok(())
}

/// Returns the path of an APIService; that of all for an empty name.
fn path(name: &str) -> String {
    match name {
        "" => format!("/apis/{GROUP}/{VERSION}/{RESOURCE}"),
        name => format!("/apis/{GROUP}/{VERSION}/{RESOURCE}/{name}"),
    }
}

/// Sends a request of the server itself. A conflict, or an object that is there or gone already, is success: another
/// server did the same, and the next change tells.
async fn send(chain: &Chain, method: &str, path: &str, body: &Value) -> Result<(), u16> {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, media_type)
        .header(http::header::USER_AGENT, "orlop")
        .body(http_body_util::Full::new(bytes::Bytes::from(body.to_string())))
        .map_err(|_| 400_u16)?;
    let user = UserInfo::master("system:apiserver");
    let response = chain.answer(request, Some(&user)).await;
    match response.status().as_u16() {
        200..300 | 404 | 409 => Ok(()),
        code => {
            tracing::warn!(method, path, code, "cannot write an APIService; it will be retried");
            Err(code)
        }
    }
}
