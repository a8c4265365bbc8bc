//! Example of an operator test: a server, the operator, and its expected effects.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{
        controller::{Action, Controller},
        wait::{await_condition, conditions},
        watcher,
    },
};
use orlop_test::Server;
use serde_json::json;
use tokio::time::timeout;

/// Deadline of every wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// An operator: every ConfigMap that is labelled `mirror` gets a Secret with the same data.
async fn mirror(client: Client) {
    let maps = Api::<ConfigMap>::all(client.clone());
    let labelled = watcher::Config::default().labels("mirror");
    Controller::new(maps, labelled)
        .owns(Api::<Secret>::all(client.clone()), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(50)), Arc::new(client))
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let secrets = Api::<Secret>::namespaced((*client).clone(), &map.namespace().unwrap_or_default());
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(map.name_any()),
            owner_references: Some(map.controller_owner_ref(&()).into_iter().collect()),
            ..ObjectMeta::default()
        },
        string_data: map.data.clone(),
        ..Secret::default()
    };
    let apply = PatchParams::apply("mirror").force();
    secrets.patch(&map.name_any(), &apply, &Patch::Apply(&secret)).await?;
    Ok(Action::await_change())
}

fn labelled(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([("mirror".to_owned(), String::new())])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("key".to_owned(), "value".to_owned())])),
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn operator_reconciles_against_its_own_server() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let operator = tokio::spawn(mirror(server.client()));
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let secrets = Api::<Secret>::default_namespaced(server.client());
    maps.create(&PostParams::default(), &labelled("settings")).await?;

    let mirrored = |secret: Option<&Secret>| secret.is_some();
    let made = timeout(PATIENCE, await_condition(secrets.clone(), "settings", mirrored)).await??;
    let made = made.ok_or_else(|| anyhow::anyhow!("no secret"))?;
    assert_eq!(
        made.data.as_ref().and_then(|data| data.get("key")).map(|v| v.0.as_slice()),
        Some(&b"value"[..])
    );

    // The garbage collector runs: what the operator made goes with its owner.
    let uid = made.uid().unwrap_or_default();
    maps.delete("settings", &DeleteParams::background()).await?;
    timeout(PATIENCE, await_condition(secrets, "settings", conditions::is_deleted(&uid))).await??;
    operator.abort();
    Ok(())
}

#[tokio::test]
async fn namespace_deletion_deletes_its_content() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let namespaces = Api::<Namespace>::all(server.client());
    let named = |name: &str| Namespace {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    let made = namespaces.create(&PostParams::default(), &named("team")).await?;
    let maps = Api::<ConfigMap>::namespaced(server.client(), "team");
    maps.create(&PostParams::default(), &labelled("a")).await?;
    namespaces.delete("team", &DeleteParams::default()).await?;
    let gone = conditions::is_deleted(made.meta().uid.as_deref().unwrap_or_default());
    timeout(PATIENCE, await_condition(namespaces, "team", gone)).await??;
    assert!(maps.list(&Default::default()).await?.items.is_empty());
    Ok(())
}

/// The message of a condition of a namespace that holds.
fn condition_message<'a>(namespace: Option<&'a Namespace>, condition: &str) -> Option<&'a str> {
    let conditions = namespace?.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|known| known.type_ == condition && known.status == "True")?;
    found.message.as_deref()
}

#[tokio::test]
async fn namespace_deletion_waits_for_pods_and_reports_remaining_content() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let namespaces = Api::<Namespace>::all(server.client());
    let (maps, pods) = (
        Api::<ConfigMap>::namespaced(server.client(), "team"),
        Api::<Pod>::namespaced(server.client(), "team"),
    );
    let held = |value: serde_json::Value| {
        let mut object = value;
        object["metadata"] = json!({"name": "held", "finalizers": ["example.com/hold"]});
        object
    };
    namespaces
        .create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "team"}}))?)
        .await?;
    let map = held(json!({}));
    maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    let pod = held(json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}));
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let uid = namespaces.get("team").await?.uid().unwrap_or_default();
    namespaces.delete("team", &DeleteParams::default()).await?;

    let waits_for = |what: &'static str| {
        let message = format!("Some resources are remaining: {what} has 1 resource instances");
        let holds = move |namespace: Option<&Namespace>| {
            condition_message(namespace, "NamespaceContentRemaining") == Some(&message)
                && condition_message(namespace, "NamespaceFinalizersRemaining").is_some_and(|told| {
                    told.ends_with("finalizers remaining: example.com/hold in 1 resource instances")
                })
        };
        timeout(PATIENCE, await_condition(namespaces.clone(), "team", holds))
    };
    waits_for("pods.").await??;
    assert!(maps.get("held").await?.metadata.deletion_timestamp.is_none(), "its turn comes after the pods");
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("held", &PatchParams::default(), &release).await?;
    waits_for("configmaps.").await??;
    maps.patch("held", &PatchParams::default(), &release).await?;
    timeout(PATIENCE, await_condition(namespaces, "team", conditions::is_deleted(&uid))).await??;
    Ok(())
}

#[tokio::test]
async fn servers_are_isolated_and_ready_in_milliseconds() -> anyhow::Result<()> {
    let (one, other) = (Server::start().await?, Server::with_controllers(&[]).await?);
    Api::default_namespaced(one.client()).create(&PostParams::default(), &labelled("a")).await?;
    let maps = Api::<ConfigMap>::default_namespaced(other.client());
    assert!(maps.get_opt("a").await?.is_none());
    println!("ready in {:?} and {:?}", one.ready_in(), other.ready_in());
    // Many times what it takes, since the machine may be busy and this is not optimised.
    assert!(one.ready_in() < Duration::from_secs(2), "ready in {:?}", one.ready_in());
    Ok(())
}

#[tokio::test]
async fn dropping_a_server_ends_its_watches() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let maps = Api::<ConfigMap>::all(server.client());
    let mut events = maps.watch(&Default::default(), "0").await?.boxed();
    drop(server);
    timeout(PATIENCE, async { while events.next().await.is_some() {} }).await?;
    Ok(())
}

#[tokio::test]
async fn unknown_controller_is_an_error() {
    let error = Server::with_controllers(&["-nonsense"]).await.err().map(|error| error.to_string());
    assert!(error.is_some_and(|text| text.starts_with("there is no controller \"nonsense\"")));
}
