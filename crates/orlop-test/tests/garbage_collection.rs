//! Garbage collection with Orlop's change stream and owner index, and with the plain Kubernetes API.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams,
        PostParams,
    },
    client::Body,
    runtime::wait::{await_condition, conditions},
};
use orlop_test::Server;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::timeout};

/// Deadline of every wait.
const PATIENCE: Duration = Duration::from_secs(30);
const COLLECTOR: &str = "garbage-collector-controller";

/// Configuration of the collector under test.
#[derive(Clone, Copy, Debug)]
enum Pages {
    /// Everything that the server has.
    All,
    /// Nothing but the Kubernetes API.
    Kubernetes,
}

/// A server whose collector is not running yet.
async fn server() -> anyhow::Result<Server> {
    Ok(Server::with_controllers(&[&format!("-{COLLECTOR}")]).await?)
}

/// Runs a collector. Aborting it is its end.
fn collect(server: &Server, pages: Pages) -> JoinHandle<()> {
    let client = match pages {
        Pages::All => server.client(),
        Pages::Kubernetes => without_own_pages(server.client()),
    };
    tokio::spawn(async move {
        orlop_controllers::run(
            orlop_test::for_controllers(client),
            &[COLLECTOR],
            orlop_controllers::Options::default(),
        )
        .await;
    })
}

/// A client to whom the server's own pages do not exist.
fn without_own_pages(client: Client) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let client = client.clone();
        async move {
            if request.uri().path().starts_with("/orlop/") {
                let mut missing = http::Response::new(Body::from(b"404 page not found".to_vec()));
                *missing.status_mut() = http::StatusCode::NOT_FOUND;
                return Ok(missing);
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

async fn map(server: &Server, name: &str) -> kube::Result<ConfigMap> {
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let map = ConfigMap { metadata: named(name), ..ConfigMap::default() };
    maps.create(&PostParams::default(), &map).await
}

/// A secret with an owner that waits for it.
async fn secret_of(server: &Server, name: &str, owner: Value) -> anyhow::Result<Secret> {
    let secret = serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": [owner]}}))?;
    Ok(Api::<Secret>::default_namespaced(server.client()).create(&PostParams::default(), &secret).await?)
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": true})
}

fn owner_of_map(map: &ConfigMap) -> Value {
    owner("v1", "ConfigMap", &map.name_any(), &map.uid().unwrap_or_default())
}

async fn until_gone<K>(objects: Api<K>, object: &K) -> anyhow::Result<()>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let uid = object.meta().uid.clone().unwrap_or_default();
    timeout(PATIENCE, await_condition(objects, &object.name_any(), conditions::is_deleted(&uid))).await??;
    Ok(())
}

/// Definitions of a kind, `Widget`, of which one can come after another.
async fn define(server: &Server, plural: &str) -> anyhow::Result<CustomResourceDefinition> {
    let definition = serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))?;
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    Ok(definitions.create(&PostParams::default(), &definition).await?)
}

fn widgets(server: &Server, plural: &str) -> (Api<DynamicObject>, ApiResource) {
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    (Api::default_namespaced_with(server.client(), &resource), resource)
}

/// Creates an object that is certainly collected: once it is gone, the collector has come so far.
async fn until_collected_so_far(server: &Server) -> anyhow::Result<()> {
    let mark = secret_of(server, "mark", owner("v1", "ConfigMap", "nobody", "nobody")).await?;
    until_gone(Api::default_namespaced(server.client()), &mark).await
}

/// Three objects, each owned by the one before and the first by the last.
async fn cycle_of_owners_is_deleted_in_the_foreground(pages: Pages) -> anyhow::Result<()> {
    let server = server().await?;
    let collector = collect(&server, pages);
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let mut members = Vec::new();
    for name in ["one", "two", "three"] {
        members.push(map(&server, name).await?);
    }
    for (place, member) in members.iter().enumerate() {
        let owners = [owner_of_map(&members[(place + 2) % 3])];
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
        maps.patch(&member.name_any(), &PatchParams::default(), &patch).await?;
    }
    maps.delete("one", &DeleteParams::foreground()).await?;
    for member in &members {
        until_gone(maps.clone(), member).await?;
    }
    collector.abort();
    Ok(())
}

async fn dependents_of_deleted_owners_are_collected(pages: Pages) -> anyhow::Result<()> {
    let server = server().await?;
    let collector = collect(&server, pages);
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let secrets = Api::<Secret>::default_namespaced(server.client());
    for how in [DeleteParams::background(), DeleteParams::foreground()] {
        let map = map(&server, "owner").await?;
        let secret = secret_of(&server, "child", owner_of_map(&map)).await?;
        maps.delete("owner", &how).await?;
        until_gone(secrets.clone(), &secret).await?;
        until_gone(maps.clone(), &map).await?;
    }
    let map = map(&server, "owner").await?;
    secret_of(&server, "child", owner_of_map(&map)).await?;
    maps.delete("owner", &DeleteParams::orphan()).await?;
    until_gone(maps, &map).await?;
    until_collected_so_far(&server).await?;
    assert!(secrets.get("child").await?.owner_references().is_empty(), "an orphan forgets its owner");
    collector.abort();
    Ok(())
}

async fn collector_catches_up_after_downtime(pages: Pages) -> anyhow::Result<()> {
    let server = server().await?;
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let (gone, waiting) = (map(&server, "gone").await?, map(&server, "waiting").await?);
    let secret = secret_of(&server, "child", owner_of_map(&gone)).await?;
    maps.delete("gone", &DeleteParams::background()).await?;
    maps.delete("waiting", &DeleteParams::foreground()).await?;
    let collector = collect(&server, pages);
    until_gone(Api::default_namespaced(server.client()), &secret).await?;
    until_gone(maps, &waiting).await?;
    collector.abort();
    Ok(())
}

async fn unknown_owner_kind_defers_collection(pages: Pages) -> anyhow::Result<()> {
    let server = server().await?;
    let collector = collect(&server, pages);
    let secrets = Api::<Secret>::default_namespaced(server.client());
    let secret = secret_of(&server, "child", owner("example.com/v1", "Widget", "w", "unknown")).await?;
    until_collected_so_far(&server).await?;
    assert!(secrets.get_opt("child").await?.is_some(), "its owner may be on its way");
    // Now the kind is known, and there is no such owner.
    define(&server, "widgets").await?;
    until_gone(secrets, &secret).await?;
    collector.abort();
    Ok(())
}

async fn recreated_owner_kind_keeps_its_dependents(pages: Pages) -> anyhow::Result<()> {
    let server = server().await?;
    let collector = collect(&server, pages);
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let secrets = Api::<Secret>::default_namespaced(server.client());
    let mut lasting = None;
    for plural in ["widgets", "gadgets"] {
        let definition = define(&server, plural).await?;
        let (objects, resource) = widgets(&server, plural);
        let widget = objects.create(&PostParams::default(), &DynamicObject::new("w", &resource)).await?;
        let uid = widget.uid().unwrap_or_default();
        let secret = secret_of(&server, plural, owner("example.com/v1", "Widget", "w", &uid)).await?;
        if plural == "widgets" {
            definitions.delete("widgets.example.com", &DeleteParams::default()).await?;
            until_gone(definitions.clone(), &definition).await?;
        } else {
            lasting = Some((objects, secret));
        }
    }
    until_collected_so_far(&server).await?;
    assert!(
        secrets.get_opt("gadgets").await?.is_some(),
        "its owner is there, under another name of its kind"
    );
    if let Some((objects, secret)) = lasting {
        objects.delete("w", &DeleteParams::default()).await?;
        until_gone(secrets, &secret).await?;
    }
    collector.abort();
    Ok(())
}

macro_rules! with_all_pages_and_with_kubernetes_alone {
    ($($name:ident)*) => {
        mod with_all_pages {
            $(#[tokio::test]
            async fn $name() -> anyhow::Result<()> {
                super::$name(super::Pages::All).await
            })*
        }
        mod with_kubernetes_alone {
            $(#[tokio::test]
            async fn $name() -> anyhow::Result<()> {
                super::$name(super::Pages::Kubernetes).await
            })*
        }
    };
}

with_all_pages_and_with_kubernetes_alone! {
    dependents_of_deleted_owners_are_collected
    cycle_of_owners_is_deleted_in_the_foreground
    collector_catches_up_after_downtime
    unknown_owner_kind_defers_collection
    recreated_owner_kind_keeps_its_dependents
}
