//! Admission plugins.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::{group_version::GroupResource, status::Status};
use orlop_server::{
    admission::{Admission, AdmissionRequest, Operation},
    auth::issuer::Issuer,
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};
use support::{ask, call, get, started, whole};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Labels ConfigMaps, and does what their data says.
#[derive(Debug)]
struct Labeler;

#[async_trait]
impl Admission for Labeler {
    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if request.attributes.resource != "configmaps" {
            return Ok(());
        }
        object["metadata"]["labels"]["seen"] = if old.is_some() { "again".into() } else { "once".into() };
        match object["data"]["do"].as_str() {
            Some("break managers") => {
                object["metadata"]["managedFields"] = json!([{"operation": "Nonsense"}]);
            }
            Some("invent") => object["invented"] = true.into(),
            Some("own twice") => {
                let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
                object["metadata"]["ownerReferences"] = json!([owner, owner]);
            }
            _ => {}
        }
        Ok(())
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        assert_eq!(object.is_none(), request.operation == Operation::Delete);
        let Some(object) = object.or(old) else { return Ok(()) };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if object["data"]["do"] == "stay out" {
            return Err(Status::forbidden(&GroupResource::new("", "configmaps"), name, "it asked to"));
        }
        Ok(())
    }
}

async fn server() -> Chain {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap());
    started(cluster.with_admission(Arc::new(Labeler))).await
}

fn map(name: &str, task: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"do": task}})
}

/// Creates an object. Returns the response and its warning.
async fn create(chain: &Chain, object: &Value) -> (Value, String) {
    let headers = [("content-type", "application/json")];
    let path = format!("{MAPS}?fieldManager=writer");
    let (code, headers, body) = whole(ask(chain, "POST", &path, &headers, object.to_string()).await).await;
    assert_eq!(code, 201);
    let warning = headers.get("warning").map(|value| value.to_str().unwrap().to_owned());
    (serde_json::from_slice(&body).unwrap(), warning.unwrap_or_default())
}

#[tokio::test]
async fn fields_set_by_mutating_admission_have_no_manager() {
    let chain = server().await;
    let (created, warning) = create(&chain, &map("m", "nothing")).await;
    assert_eq!((created["metadata"]["labels"]["seen"].as_str(), warning.as_str()), (Some("once"), ""));
    let owner = &created["metadata"]["managedFields"][0];
    assert_eq!(owner["fieldsV1"], json!({"f:data": {".": {}, "f:do": {}}}));
    let change = json!({"data": {"x": "y"}});
    let (code, changed) = call(&chain, "PATCH", &format!("{MAPS}/m"), Some(&change)).await;
    assert_eq!((code, &changed["metadata"]["labels"]["seen"]), (200, &json!("again")));
    let (code, unchanged) = call(&chain, "PATCH", &format!("{MAPS}/m"), Some(&change)).await;
    assert_eq!(code, 200);
    assert_eq!(unchanged["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn object_is_made_valid_after_mutating_admission() {
    let chain = server().await;
    let (created, warning) = create(&chain, &map("m", "break managers")).await;
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "writer");
    assert!(
        warning.contains(".metadata.managedFields was in an invalid state after admission; this could be"),
        "{warning}"
    );
    let (created, _) = create(&chain, &map("n", "invent")).await;
    assert_eq!(created.get("invented"), None);
    let (created, warning) = create(&chain, &map("o", "own twice")).await;
    assert_eq!(created["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    let expected = "duplicate entries after mutating admission happens; API server dedups owner references in \
                    1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate \
                    UID(s) observed: u";
    assert!(warning.contains(expected), "{warning}");
}

#[tokio::test]
async fn validating_admission_refuses_writes_and_deletes() {
    let chain = server().await;
    let (code, refused) = call(&chain, "POST", MAPS, Some(&map("m", "stay out"))).await;
    assert_eq!((code, &refused["reason"]), (403, &json!("Forbidden")));
    assert_eq!(get(&chain, &format!("{MAPS}/m")).await.0, 404);
    create(&chain, &map("m", "nothing")).await;
    let change = json!({"data": {"do": "stay out"}});
    let path = format!("{MAPS}/m");
    assert_eq!(call(&chain, "PATCH", &path, Some(&change)).await.0, 403);
    assert_eq!(call(&chain, "PUT", &path, Some(&map("m", "stay out"))).await.0, 403);
    assert_eq!(get(&chain, &path).await.1["data"], json!({"do": "nothing"}));
}
