//! The client's cache and the agent, across changes and restarts of the server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use orlop_device::{
    Config, Server,
    agent::{self, Fake, MakeSource, Reading, Source},
    server::WritePolicy,
};
use orlop_device_client::{Cache, Change, Connect, Gpus, api::*};
use orlop_store::Endpoint;
use support::{Calls, Fixture, MERGE_PATCH, Storage, gpu, meta};

/// Waits for something to become so.
async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in time: {what}");
}

fn names(cache: &Cache<Gpus>) -> String {
    cache.list().iter().map(|gpu| meta(gpu).name().to_owned()).collect::<Vec<_>>().join(" ")
}

async fn serve(folder: &tempfile::TempDir, storage: Endpoint, retention: Duration) -> Server {
    let config = Config {
        storage,
        socket: Some(folder.path().join("device.sock")),
        policy: WritePolicy { any_process: true, ..WritePolicy::default() },
        retention,
        grace: Duration::from_secs(2),
        ..Config::default()
    };
    Server::start(config).await.unwrap()
}

fn connect(folder: &tempfile::TempDir) -> orlop_device_client::Connection {
    Connect::to(format!("unix://{}", folder.path().join("device.sock").display())).open().unwrap()
}

fn short(change: &Change<Gpu>) -> String {
    match change {
        Change::Added(gpu) => format!("+{}", meta(gpu).name()),
        Change::Modified(gpu) => format!("~{}", meta(gpu).name()),
        Change::Deleted(gpu) => format!("-{}", meta(gpu).name()),
    }
}

on_both_storages! {
    async fn cache_equals_the_servers_objects(f: Fixture) {
        let mut client = f.client.clone();
        client.create(gpu("a")).await.unwrap();
        let changes = Arc::new(Mutex::new(Vec::new()));
        let noted = changes.clone();
        let cache = Cache::start_with(Gpus::new(f.connection.clone()), move |change| {
            noted.lock().unwrap().push(short(&change));
        });
        cache.synced().await;
        assert_eq!(names(&cache), "a");
        client.create(gpu("b")).await.unwrap();
        client.patch("a", MERGE_PATCH, r#"{"metadata":{"labels":{"x":"y"}}}"#, &[]).await.unwrap();
        client.delete("b").await.unwrap();
        eventually("four changes", || changes.lock().unwrap().len() == 4).await;
        assert_eq!(*changes.lock().unwrap(), ["+a", "+b", "~a", "-b"]);
        assert_eq!(meta(&cache.get("default", "a").unwrap()).labels["x"], "y");
        assert!(cache.get("default", "b").is_none());
    }
}

#[tokio::test]
async fn cache_resumes_on_disk_and_relists_after_an_in_memory_restart() {
    for on_disk in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let storage = || match on_disk {
            true => Endpoint::Sqlite(folder.path().join("state.db")),
            false => Endpoint::Memory,
        };
        let hour = Duration::from_secs(3600);
        let server = serve(&folder, storage(), hour).await;
        let mut client = Gpus::new(connect(&folder)).client();
        for name in ["a", "b", "c"] {
            client.create(gpu(name)).await.unwrap();
        }
        let changes = Arc::new(Mutex::new(Vec::new()));
        let noted = changes.clone();
        let cache = Cache::start_with(Gpus::new(connect(&folder)), move |change| {
            noted.lock().unwrap().push(short(&change));
        });
        cache.synced().await;
        server.stop().await;
        let server = serve(&folder, storage(), hour).await;
        // In memory the new life gets as far as the old one did: the numbers alone would not tell them apart.
        for name in ["b", "x", "y", "z"] {
            let _ = client.create(gpu(name)).await;
        }
        let expected = if on_disk { "a b c x y z" } else { "b x y z" };
        eventually(expected, || names(&cache) == expected).await;
        let seen = changes.lock().unwrap().join(" ");
        if on_disk {
            assert_eq!(seen, "+a +b +c +x +y +z", "no event is delivered twice");
        } else {
            assert!(seen.contains("-a") && seen.contains("-c") && seen.contains("~b"), "{seen}");
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn cache_relists_after_compaction() {
    let folder = tempfile::tempdir().unwrap();
    let storage = || Endpoint::Sqlite(folder.path().join("state.db"));
    let server = serve(&folder, storage(), Duration::from_millis(200)).await;
    let mut client = Gpus::new(connect(&folder)).client();
    for name in ["a", "b"] {
        client.create(gpu(name)).await.unwrap();
    }
    let cache = Cache::start(Gpus::new(connect(&folder)));
    cache.synced().await;
    server.stop().await;
    // While the cache cannot reach it, a server elsewhere on the same file changes things and forgets.
    let elsewhere = tempfile::tempdir().unwrap();
    let server = serve(&elsewhere, storage(), Duration::from_millis(200)).await;
    let mut client = Gpus::new(connect(&elsewhere)).client();
    client.delete("a").await.unwrap();
    let seen = meta(&client.get("b").await.unwrap()).resource_version.clone();
    let from_there = || ListOptions { resource_version: seen.clone(), ..ListOptions::default() };
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.watch(from_there()).await.is_ok() {
        assert!(Instant::now() < deadline, "history is never forgotten");
        client.create(gpu("n")).await.unwrap();
        client.delete("n").await.unwrap();
    }
    server.stop().await;
    let server = serve(&folder, storage(), Duration::from_millis(200)).await;
    eventually("b alone", || names(&cache) == "b").await;
    server.stop().await;
}

#[tokio::test]
async fn agent_registers_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&folder, Endpoint::Memory, Duration::from_secs(300)).await;
    let running = tokio::spawn(agent::run(connect(&folder), Fake::source(5), Duration::from_millis(50)));
    let cache = Cache::start(Gpus::new(connect(&folder)));
    let ready = |gpu: &Gpu| {
        let conditions = gpu.status.iter().flat_map(|status| &status.conditions);
        conditions.filter(|condition| condition.status == "True").count() == 4
    };
    let all = || cache.list().len() == 5 && cache.list().iter().all(|gpu| ready(gpu));
    eventually("five GPUs", all).await;
    let uids = || cache.list().iter().map(|gpu| meta(gpu).uid().to_owned()).collect::<Vec<_>>();
    let before = uids();
    server.stop().await;
    let server = serve(&folder, Endpoint::Memory, Duration::from_secs(300)).await;
    eventually("five new GPUs", || all() && uids().iter().all(|uid| !before.contains(uid))).await;
    running.abort();
    server.stop().await;
}

/// Says what a test wants it to say.
struct Scripted(Arc<Mutex<Result<Vec<Reading>, String>>>);

impl Source for Scripted {
    fn describe(&self) -> String {
        "a test".into()
    }

    fn wait(&mut self, _: Duration) {
        std::thread::sleep(Duration::from_millis(10));
    }

    fn read(&mut self) -> Result<Vec<Reading>, String> {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn agent_reconciles_its_conditions_and_keeps_those_of_others() {
    let f = Fixture::start(Storage::Disk).await;
    let well = Reading {
        uuid: "GPU-AB12".into(),
        product: "NVIDIA H200".into(),
        hot: Some(false),
        ..Reading::default()
    };
    let says = Arc::new(Mutex::new(Ok(vec![well.clone()])));
    let script = Scripted(says.clone());
    let source: MakeSource = Box::new(move |with| {
        let mut script = script;
        with(&mut script);
        Ok(())
    });
    let running = tokio::spawn(agent::run(f.connection.clone(), source, Duration::from_millis(10)));
    let cache = Cache::start(Gpus::new(f.connection.clone()));
    let status = |kind: &str| {
        let gpu = cache.get("default", "gpu-ab12")?;
        let conditions = &gpu.status.as_ref()?.conditions;
        conditions
            .iter()
            .find(|condition| condition.r#type == kind)
            .map(|c| (c.status.clone(), c.reason.clone()))
    };
    let is =
        |kind: &str, expected: (&str, &str)| status(kind) == Some((expected.0.into(), expected.1.into()));
    let action =
        || cache.get("default", "gpu-ab12").and_then(|gpu| gpu.status.as_ref()?.recommended_action.clone());
    eventually("ready", || is("Ready", ("True", "DeviceReady"))).await;

    // Somebody else says something about the same GPU.
    let mut client = f.client.clone();
    let patch = r#"[{"op":"add","path":"/status/conditions/-","value":{"type":"Drained","status":"True"}}]"#;
    client.patch("gpu-ab12", support::JSON_PATCH, patch, &["status"]).await.unwrap();

    *says.lock().unwrap() = Ok(vec![Reading { xid: Some((79, 1)), hot: Some(true), ..well.clone() }]);
    eventually("an error", || {
        is("Ready", ("False", "Xid79")) && is("ThermalHealthy", ("False", "ThermalSlowdown"))
    })
    .await;
    assert_eq!(action().as_deref(), Some("RESTART_BM"));
    assert!(is("Drained", ("True", "")), "a condition of somebody else's stays");

    *says.lock().unwrap() = Err("the driver is gone".into());
    eventually("lost", || is("Ready", ("False", "DeviceLost"))).await;

    // An object deleted by mistake comes back.
    *says.lock().unwrap() = Ok(vec![well]);
    eventually("ready again", || is("Ready", ("True", "DeviceReady"))).await;
    client.delete("gpu-ab12").await.unwrap();
    eventually("registered again", || status("Drained").is_none() && is("Ready", ("True", "DeviceReady")))
        .await;
    running.abort();
}
