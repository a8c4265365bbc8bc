//! The default FlowSchemas and PriorityLevelConfigurations, and the status of FlowSchemas.
//!
//! Missing objects are created, and changed ones are set back, unless somebody has taken them over (see
//! [`orlop_kinds::flowcontrol::bootstrap`]). The mandatory ones are in force even before they exist.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::{join_all, try_join_all};
use http::{HeaderValue, header};
use orlop_api::status::Status;
use orlop_flow_control::{DanglingUpdate, FlowSchema};
use orlop_kinds::flowcontrol::{
    GROUP,
    bootstrap::{is_unwanted, mandatory, revise, suggested},
};
use orlop_store::{KeyRange, Read};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{BootstrapError, send};
use crate::{
    chain::Chain,
    cluster::Cluster,
    definition_controllers::request,
    endpoints::{create, patch},
    http::{negotiation::APPLY, query::Query},
    object::now,
    registry::Found,
    request::{Subresource, Verb},
    storage::status_from_store_error as status,
};

/// Pause before conditions are written: a start has more to do, and several changes become one.
const STATUS_PAUSE: Duration = Duration::from_millis(200);
/// Writes of one FlowSchema's condition in a minute. Servers that disagree do not write all the time.
const STATUS_WRITES_MAX: usize = 6;
const MINUTE: Duration = Duration::from_secs(60);
/// Field manager of conditions.
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
/// Field manager of specs.
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";

/// Puts the stored configuration in force, and keeps the status of FlowSchemas from then on.
pub(super) async fn load(chain: &Chain) -> Result<(), BootstrapError> {
    let cluster = chain.cluster();
    if cluster.flow_control.in_flight.is_some() {
        return Ok(());
    }
    cluster.flow_control.load().await.map_err(|status| BootstrapError::FlowControl(status.message))?;
    let closing = cluster.closing();
    let keeping = keep_status(Arc::downgrade(cluster));
    tokio::spawn(async move {
        tokio::select! {
            () = keeping => {}
            () = closing => {}
        }
    });
    Ok(())
}

/// Creates and updates the default objects.
pub(super) async fn ensure(chain: &Chain) -> Result<(), BootstrapError> {
    ensure_among(chain, &existing(chain).await?).await
}

/// Creates and updates the default objects, and removes those that are defaults no more.
pub(super) async fn reconcile(chain: &Chain) -> Result<(), BootstrapError> {
    let existing = existing(chain).await?;
    ensure_among(chain, &existing).await?;
    for object in existing.iter().filter(|object| is_unwanted(object)) {
        let path = format!("{}/{}", collection(object), text(object, "/metadata/name"));
        let code = send(chain, "DELETE", &path, "application/json", String::new()).await?;
        if code >= 300 && code != 404 {
            return Err(BootstrapError::Response { path, code });
        }
    }
    Ok(())
}

async fn ensure_among(chain: &Chain, existing: &[Value]) -> Result<(), BootstrapError> {
    let objects = mandatory().into_iter().map(|object| (object, true));
    let objects = objects.chain(suggested().into_iter().map(|object| (object, false)));
    // Concurrent writes share a group commit.
    let ensured = objects.map(|(default, is_mandatory)| async move {
        let is_same = |object: &&Value| {
            ["/kind", "/metadata/name"].iter().all(|path| text(object, path) == text(&default, path))
        };
        ensure_object(chain, existing.iter().find(is_same), &default, is_mandatory).await
    });
    try_join_all(ensured).await.map(drop)
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn resource(object: &Value) -> &'static str {
    match text(object, "/kind") {
        "FlowSchema" => "flowschemas",
        _ => "prioritylevelconfigurations",
    }
}

fn collection(object: &Value) -> String {
    format!("/apis/{GROUP}/v1/{}", resource(object))
}

async fn ensure_object(
    chain: &Chain,
    existing: Option<&Value>,
    default: &Value,
    is_mandatory: bool,
) -> Result<(), BootstrapError> {
    let Some(existing) = existing else { return create_default(chain, default).await };
    let Some(revised) = revise(existing, default, is_mandatory) else { return Ok(()) };
    let path = format!("{}/{}", collection(default), text(default, "/metadata/name"));
    let target = format!("{path}?fieldManager={PRODUCER}");
    match send(chain, "PUT", &target, "application/json", revised.to_string()).await? {
        // Another server or person was faster: it is looked at again.
        200..300 | 404 | 409 => Ok(()),
        code => Err(BootstrapError::Response { path, code }),
    }
}

/// Creates a default object. A FlowSchema has its condition from the start: its level is a default too.
async fn create_default(chain: &Chain, default: &Value) -> Result<(), BootstrapError> {
    let kinds = chain.cluster().objects.registry.kinds();
    let Some(kind) = kinds.get(GROUP, "v1", resource(default)).cloned() else { return Ok(()) };
    let update = FlowSchema::decode(default).and_then(|schema| DanglingUpdate::of(&schema, true));
    let status = update.map(|update| json!({"conditions": [condition(&update)]}));
    let request = request(chain.cluster(), kind, "", text(default, "/metadata/name"));
    let created = create::create_own(&request, default.clone(), status, PRODUCER).await;
    created.map_err(|status| BootstrapError::FlowControl(status.message))
}

/// Reads all objects that configure flow control.
async fn existing(chain: &Chain) -> Result<Vec<Value>, BootstrapError> {
    let objects = &chain.cluster().objects;
    let failed = |status: Status| BootstrapError::FlowControl(status.message);
    let mut existing = Vec::new();
    for resource in ["flowschemas", "prioritylevelconfigurations"] {
        let Some(kind) = objects.registry.kinds().get(GROUP, "v1", resource).cloned() else { continue };
        let range = KeyRange::prefix(objects.collection(&kind, ""));
        let mut pages = objects.store.pages(Read::new(range)).map_err(|error| failed(status(&error)))?;
        while let Some(page) = pages.next().await.map_err(|error| failed(status(&error)))? {
            let found: Vec<Found> = page.kvs.into_iter().map(Found::from).collect();
            existing.extend(kind.read_all(&found).await.map_err(failed)?);
        }
    }
    Ok(existing)
}

// === Status ===

/// Writes the condition Dangling of FlowSchemas whenever it is not right.
async fn keep_status(cluster: Weak<Cluster>) {
    let Some(mut synced) = cluster.upgrade().map(|cluster| cluster.flow_control.synced()) else { return };
    let mut written: HashMap<String, VecDeque<Instant>> = HashMap::new();
    loop {
        tokio::time::sleep(STATUS_PAUSE).await;
        // Changes that come while conditions are written are looked at afterwards.
        synced.borrow_and_update();
        let is_complete = match cluster.upgrade() {
            Some(cluster) => write_conditions(&cluster, &mut written).await,
            None => return,
        };
        let retry = async {
            match is_complete {
                true => std::future::pending().await,
                false => tokio::time::sleep(MINUTE / STATUS_WRITES_MAX as u32).await,
            }
        };
        tokio::select! {
            changed = synced.changed() => if changed.is_err() { return },
            () = retry => {}
        }
    }
}

/// Writes conditions. Returns false if some are left for later.
async fn write_conditions(cluster: &Arc<Cluster>, written: &mut HashMap<String, VecDeque<Instant>>) -> bool {
    let updates = cluster.flow_control.controller.dangling_updates();
    let now = Instant::now();
    written.retain(|_, times| {
        times.retain(|time| now.duration_since(*time) < MINUTE);
        !times.is_empty()
    });
    let (mut wanted, all) = (Vec::new(), updates.len());
    for update in updates {
        let times = written.entry(update.schema.clone()).or_default();
        if times.len() < STATUS_WRITES_MAX {
            times.push_back(now);
            wanted.push(update);
        }
    }
    let is_limited = wanted.len() < all;
    let outcomes = join_all(wanted.iter().map(|update| write_condition(cluster, update))).await;
    let mut is_complete = !is_limited;
    for (update, outcome) in wanted.iter().zip(outcomes) {
        match outcome {
            Ok(()) => {}
            // It was deleted meanwhile.
            Err(status) if status.code == 404 => {}
            Err(status) => {
                tracing::debug!(schema = update.schema, message = status.message, "cannot set a condition");
                is_complete = false;
            }
        }
    }
    is_complete
}

fn condition(update: &DanglingUpdate) -> Value {
    json!({
        "type": "Dangling", "status": update.status, "reason": update.reason, "message": update.message,
        "lastTransitionTime": now().to_string(),
    })
}

/// Applies a condition as Kubernetes does: by server-side apply of the status.
async fn write_condition(cluster: &Arc<Cluster>, update: &DanglingUpdate) -> Result<(), Status> {
    let Some(kind) = cluster.objects.registry.kinds().get(GROUP, "v1", "flowschemas").cloned() else {
        return Ok(());
    };
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "FlowSchema", "metadata": {"name": update.schema},
        "status": {"conditions": [condition(update)]},
    });
    let mut request = request(cluster, kind, "", &update.schema);
    let attributes = Arc::make_mut(&mut request.attributes);
    attributes.verb = Verb::Patch;
    attributes.subresource = Some(Subresource::Status);
    request.query = Query::parse(&format!("fieldManager={CONSUMER}&force=true"));
    request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(APPLY));
    request.body = object.to_string().into();
    patch::patch(&request).await.map(drop)
}
