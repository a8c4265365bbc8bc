//! Dependents of an object, over all kinds, by one index query. For the garbage collector, which would otherwise
//! list kind by kind.

use http::Response;
use orlop_api::{group_version::GroupVersionKind, object_meta, status::Status};
use orlop_store::{Filter, KeyRange, Read, Requirement};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    http::{body::Body, negotiation::Encoding, query::Query, response},
    registry::{Found, index::OWNER},
    storage::status_from_store_error,
};

/// Answers `/orlop/v1/dependents?uid=UID`.
pub(crate) async fn answer(cluster: &Cluster, query: &Query) -> Result<Response<Body>, Status> {
    let uid = query.text("uid");
    if uid.is_empty() {
        return Err(Status::bad_request("the parameter uid is required"));
    }
    let filter = Filter(vec![Requirement::equals(OWNER, uid)]);
    let read = Read { filter, ..Read::new(KeyRange::prefix(cluster.objects.own_key(""))) };
    let mut pages = cluster.objects.store.pages(read).map_err(|error| status_from_store_error(&error))?;
    let kinds = cluster.objects.registry.kinds();
    let mut items = Vec::new();
    while let Some(page) = pages.next().await.map_err(|error| status_from_store_error(&error))? {
        for kv in page.kvs {
            let object = Found::from(kv).as_stored()?;
            let meta = object_meta::of(&object);
            let stored = GroupVersionKind::of(&object);
            // A storage version may not be served; report one that is.
            let served = kinds.serving(&stored).map_or(stored, |kind| kind.gvk.clone());
            let field = |name: &str| meta.get(name).cloned().unwrap_or(Value::Null);
            items.push(json!({
                "apiVersion": served.api_version(), "kind": served.kind,
                "namespace": field("namespace"), "name": field("name"), "uid": field("uid"),
            }));
        }
    }
    let body = response::encode(Encoding::Json, &json!({"items": items}));
    Ok(response::bytes(200, Encoding::Json.media_type(), body))
}
