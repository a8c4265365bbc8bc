//! Watchers, reflectors, finalizers, metadata and tables.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{
        DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
    },
    runtime::{
        WatchStreamExt,
        controller::{Action, Controller},
        finalizer,
        reflector::{self, ObjectRef},
        wait::{await_condition, conditions},
        watcher,
    },
};
use orlop_test::Server;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{PATIENCE, map, refusal};

#[tokio::test]
async fn watcher_gets_initial_objects_and_changes() -> anyhow::Result<()> {
    let server = Server::with_controllers(&[]).await?;
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    maps.create(&PostParams::default(), &map("a", "k", "1")).await?;
    // By listing first, and by one stream for everything.
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let events = watcher(maps.clone(), config);
        pin_mut!(events);
        let mut seen = Vec::new();
        while seen.last() != Some(&"ready".to_owned()) {
            seen.push(
                match timeout(PATIENCE, events.try_next())
                    .await??
                    .ok_or_else(|| anyhow::anyhow!("it ended"))?
                {
                    watcher::Event::Init => "begin".to_owned(),
                    watcher::Event::InitApply(map) => map.name_any(),
                    watcher::Event::InitDone => "ready".to_owned(),
                    other => format!("{other:?}"),
                },
            );
        }
        assert_eq!(seen, ["begin", "a", "ready"]);
        maps.create(&PostParams::default(), &map("b", "k", "1")).await?;
        maps.delete("b", &DeleteParams::default()).await?;
        let next = timeout(PATIENCE, events.try_next()).await??;
        assert!(matches!(next, Some(watcher::Event::Apply(map)) if map.name_any() == "b"));
        let next = timeout(PATIENCE, events.try_next()).await??;
        assert!(matches!(next, Some(watcher::Event::Delete(map)) if map.name_any() == "b"));
    }
    Ok(())
}

#[tokio::test]
async fn watch_resumes_from_its_resource_version() -> anyhow::Result<()> {
    let server = Server::with_controllers(&[]).await?;
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let version = maps.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &map(name, "k", "1")).await?;
    }
    let first = maps.watch(&WatchParams::default().timeout(20), &version).await?.boxed().next().await;
    let Some(Ok(WatchEvent::Added(first))) = first else { anyhow::bail!("{first:?}") };
    assert_eq!(first.name_any(), "a");
    let version = first.resource_version().unwrap_or_default();
    let next = maps.watch(&WatchParams::default().timeout(20), &version).await?.boxed().next().await;
    assert!(matches!(next, Some(Ok(WatchEvent::Added(map))) if map.name_any() == "b"));
    // What is no version is refused.
    let status = refusal(maps.watch(&WatchParams::default(), "x").await.map(|_| ()));
    assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"), "{}", status.message);
    Ok(())
}

#[tokio::test]
async fn reflector_caches_the_selection() -> anyhow::Result<()> {
    let server = Server::with_controllers(&[]).await?;
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let (reader, writer) = reflector::store();
    let selected = watcher::Config::default().labels("app=web").page_size(1);
    let events = reflector::reflector(writer, watcher(maps.clone(), selected)).applied_objects();
    let following = tokio::spawn(events.for_each(|_| std::future::ready(())));
    for name in ["a", "b", "c"] {
        let mut labelled = map(name, "k", "1");
        labelled.labels_mut().insert("app".into(), if name == "c" { "db" } else { "web" }.into());
        maps.create(&PostParams::default(), &labelled).await?;
    }
    timeout(PATIENCE, reader.wait_until_ready()).await??;
    let until = async |count: usize| {
        timeout(PATIENCE, async {
            while reader.state().len() != count {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await
    };
    until(2).await?;
    // One leaves the selection without being deleted, another enters.
    let relabel = |value: &str| Patch::Merge(json!({"metadata": {"labels": {"app": value}}}));
    maps.patch("a", &PatchParams::default(), &relabel("db")).await?;
    until(1).await?;
    assert!(reader.get(&ObjectRef::new("b").within("default")).is_some());
    maps.patch("c", &PatchParams::default(), &relabel("web")).await?;
    until(2).await?;
    following.abort();
    Ok(())
}

#[tokio::test]
async fn finalizer_runs_cleanup_before_deletion() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let (maps, secrets) = (
        Api::<ConfigMap>::default_namespaced(server.client()),
        Api::<Secret>::default_namespaced(server.client()),
    );
    let reconcile = |map: Arc<ConfigMap>, client: Arc<Client>| async move {
        if map.name_any() != "owner" {
            return Ok::<_, finalizer::Error<kube::Error>>(Action::await_change());
        }
        let maps = Api::<ConfigMap>::default_namespaced((*client).clone());
        let secrets = Api::<Secret>::default_namespaced((*client).clone());
        finalizer(&maps, "example.com/cleanup", map, |event| async {
            match event {
                finalizer::Event::Apply(map) => {
                    let secret =
                        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": map.name_any()}});
                    let apply = PatchParams::apply("cleanup");
                    secrets.patch(&map.name_any(), &apply, &Patch::Apply(secret)).await?;
                }
                finalizer::Event::Cleanup(map) => {
                    secrets.delete(&map.name_any(), &DeleteParams::default()).await?;
                }
            }
            Ok(Action::await_change())
        })
        .await
    };
    let running = Controller::new(maps.clone(), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(std::time::Duration::from_millis(20)),
            Arc::new(server.client()),
        )
        .for_each(|_| std::future::ready(()));
    let running = tokio::spawn(running);
    let made = maps.create(&PostParams::default(), &map("owner", "k", "1")).await?;
    timeout(PATIENCE, await_condition(secrets.clone(), "owner", |secret: Option<&Secret>| secret.is_some()))
        .await??;
    assert_eq!(maps.get("owner").await?.finalizers(), ["example.com/cleanup"]);
    maps.delete("owner", &DeleteParams::default()).await?;
    let uid = made.uid().unwrap_or_default();
    timeout(PATIENCE, await_condition(maps, "owner", conditions::is_deleted(&uid))).await??;
    assert!(secrets.get_opt("owner").await?.is_none(), "cleaned up first");
    running.abort();
    Ok(())
}

#[tokio::test]
async fn partial_metadata_is_listed_watched_and_patched() -> anyhow::Result<()> {
    let server = Server::with_controllers(&[]).await?;
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    maps.create(&PostParams::default(), &map("a", "large", &"x".repeat(10_000))).await?;
    let listed = maps.list_metadata(&ListParams::default()).await?;
    assert_eq!(listed.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a"]);
    let metadata = Api::<PartialObjectMeta<ConfigMap>>::default_namespaced(server.client());
    let events = watcher(metadata, watcher::Config::default()).applied_objects();
    pin_mut!(events);
    let first: PartialObjectMeta<ConfigMap> =
        timeout(PATIENCE, events.try_next()).await??.ok_or_else(|| anyhow::anyhow!("it ended"))?;
    assert_eq!(first.types.as_ref().map(|types| types.kind.as_str()), Some("PartialObjectMetadata"));
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    let patched = maps.patch_metadata("a", &PatchParams::default(), &patch).await?;
    assert_eq!(patched.annotations().get("a").map(String::as_str), Some("b"));
    let next = timeout(PATIENCE, events.try_next()).await??.ok_or_else(|| anyhow::anyhow!("it ended"))?;
    assert_eq!(next.resource_version(), patched.resource_version());
    Ok(())
}

#[tokio::test]
async fn tables_are_listed_and_watched() -> anyhow::Result<()> {
    let server = Server::with_controllers(&[]).await?;
    let client = server.client();
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &map("a", "k", "1")).await?;
    let table = |path: &str| {
        http::Request::get(path)
            .header("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
            .body(Vec::new())
    };
    let path = "/api/v1/namespaces/default/configmaps";
    let listed: Value = client.request(table(path)?).await?;
    assert_eq!(listed["kind"], "Table");
    let names: Vec<&str> = listed["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|column| column["name"].as_str())
        .collect();
    assert_eq!(names, ["Name", "Data", "Age"]);
    assert_eq!(listed["rows"][0]["cells"][0], "a");
    assert_eq!(listed["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let events =
        client.request_events::<Value>(table(&format!("{path}?watch=true&timeoutSeconds=20"))?).await?;
    pin_mut!(events);
    let Some(Ok(WatchEvent::Added(first))) = timeout(PATIENCE, events.next()).await? else {
        anyhow::bail!("no event")
    };
    assert_eq!((first["kind"].as_str(), first["rows"][0]["cells"][1].as_i64()), (Some("Table"), Some(1)));
    maps.delete("a", &DeleteParams::default()).await?;
    let Some(Ok(WatchEvent::Deleted(last))) = timeout(PATIENCE, events.next()).await? else {
        anyhow::bail!("no event")
    };
    assert!(last["columnDefinitions"].as_array().is_none_or(Vec::is_empty), "columns come once: {last}");
    Ok(())
}
