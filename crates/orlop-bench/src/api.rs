//! The API server, over TLS and HTTP/2 as clients use it; with `--peer`, the same against another server.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use serde_json::json;

use crate::{
    api_custom, api_writes,
    client::Client,
    load::{self, Measured},
    report::{Better, Report},
};

const NAMESPACE: &str = "default";
const VALUE_BYTES: usize = 1024;

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// How long each load runs.
    pub(crate) time: Duration,
    /// Objects that are listed.
    pub(crate) objects: usize,
}

/// A server that was started for the benchmark.
pub(crate) struct Server {
    process: Child,
    pub(crate) kubeconfig: PathBuf,
    ready: Duration,
}

impl Server {
    pub(crate) fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let kubeconfig = folder.join("kubeconfig");
        let started = Instant::now();
        let mut process = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        // The first line comes when it is ready; what follows is for people.
        let mut line = String::new();
        let output = process.stdout.as_mut().context("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        anyhow::ensure!(line.contains("https://"), "the server said {line:?}");
        Ok(Self { process, kubeconfig, ready: started.elapsed() })
    }

    /// Processor time used so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        load::processor_seconds(self.process.id())
    }

    /// Memory that it holds.
    pub(crate) fn resident_mib(&self) -> f64 {
        load::status_mib(&self.process.id().to_string(), "VmRSS")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What one server came to, by name.
type Figures = Vec<(String, &'static str, Better, f64)>;

/// Measures `orlop`, and beside it a peer if there is one.
pub(crate) async fn run(
    report: &mut Report,
    orlop: &Path,
    peer: Option<&Path>,
    folder: &Path,
    size: Size,
) -> anyhow::Result<()> {
    let server = Server::start(orlop, folder)?;
    let ours = measure(&server.kubeconfig, Some(&server), size).await?;
    let theirs = match peer {
        // What was measured here is worth telling even if the other one fails.
        Some(kubeconfig) => measure(kubeconfig, None, size)
            .await
            .inspect_err(|error| eprintln!("the peer could not be measured: {error:#}"))
            .ok(),
        None => None,
    };
    for (name, unit, better, value) in ours {
        let peer_value =
            theirs.as_ref().and_then(|rows| rows.iter().find(|row| row.0 == name)).map(|row| row.3);
        match peer_value {
            Some(peer_value) => report.beside(name, unit, better, value, "the peer", peer_value),
            None => report.alone(name, unit, value),
        }
    }
    api_writes::run(report, &server, size).await?;
    api_custom::run(report, &server, size).await
}

async fn measure(kubeconfig: &Path, server: Option<&Server>, size: Size) -> anyhow::Result<Figures> {
    let client = Client::connect(kubeconfig, 4).await?;
    let mut figures = Figures::new();
    if let Some(server) = server {
        figures.push((
            "api: from nothing to ready".into(),
            "ms",
            Better::Lower,
            server.ready.as_secs_f64() * 1e3,
        ));
        figures.push(("api: RSS idle".into(), "MiB", Better::Lower, server.resident_mib()));
    }
    let run = format!("bench-{:x}", std::process::id());
    let mut load_of = async |what: &str, clients: usize, operation: Operation| {
        let before = server.map(Server::cpu_seconds);
        let (client, run) = (client.clone(), run.clone());
        let done: Measured = load::run(clients, size.time, move |worker, n| {
            let (client, run, operation) = (client.clone(), run.clone(), operation);
            async move { operation.once(&client, &run, worker, n).await }
        })
        .await;
        let count = done.per_second * size.time.as_secs_f64();
        figures.push((format!("api: {what}, {clients} clients"), "/s", Better::Higher, done.per_second));
        figures.push((format!("api: {what}, 99th percentile"), "ms", Better::Lower, done.quantile_ms(0.99)));
        figures.push((format!("api: {what}, failures"), "", Better::Lower, done.errors as f64));
        if let (Some(before), Some(server)) = (before, server) {
            let cpu = (server.cpu_seconds() - before) * 1e6 / count;
            figures.push((format!("api: {what}, processor time each"), "us", Better::Lower, cpu));
        }
    };
    load_of("create", 64, Operation::Create).await;
    load_of("get", 64, Operation::Get).await;
    load_of("update", 64, Operation::Update).await;
    load_of("patch", 64, Operation::Patch).await;
    fill(&client, &run, size.objects).await?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=bench%3D{run}-list");
    let listing = Instant::now();
    let (_, body) = client.get(&path).await?;
    let all_by_label = listing.elapsed();
    anyhow::ensure!(count_items(&body) == size.objects, "listed {} objects", count_items(&body));
    figures.push((
        format!("api: list of {} by label", size.objects),
        "ms",
        Better::Lower,
        all_by_label.as_secs_f64() * 1e3,
    ));
    let listing = Instant::now();
    let (_, body) = client.get(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps")).await?;
    let took = listing.elapsed().as_secs_f64();
    let found = count_items(&body);
    figures.push(("api: objects listed in one go".into(), "/s", Better::Higher, found as f64 / took));
    let walking = Instant::now();
    let (mut token, mut pages) = (String::new(), 0);
    loop {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?limit=500&continue={token}");
        let (_, body) = client.get(&path).await?;
        pages += 1;
        match continue_of(&body) {
            Some(next) => token = next,
            None => break,
        }
    }
    let rate = found as f64 / walking.elapsed().as_secs_f64();
    figures.push((format!("api: objects listed in {pages} pages"), "/s", Better::Higher, rate));
    if let Some(server) = server {
        let held = server.resident_mib();
        figures.push((format!("api: RSS with {found} objects"), "MiB", Better::Lower, held));
    }
    for watchers in [1, 100, 1000] {
        let rate = fan_out(&client, &run, watchers, size.time).await?;
        figures.push((format!("api: events to {watchers} watchers"), "/s", Better::Higher, rate));
    }
    client.delete(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=bench")).await?;
    Ok(figures)
}

#[derive(Clone, Copy)]
enum Operation {
    Create,
    Get,
    Update,
    Patch,
}

impl Operation {
    async fn once(self, client: &Client, run: &str, worker: usize, n: usize) -> bool {
        let collection = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        let own = format!("{collection}/{run}-{worker}-0");
        let answered = match self {
            Self::Create => client.post(&collection, &object(&format!("{run}-{worker}-{n}"), run, n)).await,
            Self::Get => client.get(&own).await,
            Self::Update => client.put(&own, &object(&format!("{run}-{worker}-0"), run, n)).await,
            Self::Patch => client.patch(&own, &json!({"data": {"n": n.to_string()}})).await,
        };
        answered.is_ok_and(|(code, _)| code < 300)
    }
}

fn object(name: &str, label: &str, n: usize) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"bench": label}},
        "data": {"n": n.to_string(), "value": "x".repeat(VALUE_BYTES)},
    })
}

async fn fill(client: &Client, run: &str, objects: usize) -> anyhow::Result<()> {
    const AT_ONCE: usize = 64;
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..AT_ONCE {
        let (client, label) = (client.clone(), format!("{run}-list"));
        tasks.spawn(async move {
            for n in (worker..objects).step_by(AT_ONCE) {
                let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
                let (code, body) = client.post(&path, &object(&format!("{label}-{n:06}"), &label, n)).await?;
                anyhow::ensure!(code == 201, "{code}: {}", String::from_utf8_lossy(&body));
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// How many events a second reach all watchers together, while objects are changed.
async fn fan_out(client: &Client, run: &str, watchers: usize, time: Duration) -> anyhow::Result<f64> {
    let (_, body) = client.get(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps?limit=1")).await?;
    let list: serde_json::Value = serde_json::from_slice(&body)?;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let seen = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..watchers {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?watch=1&resourceVersion={version}");
        let (client, seen) = (client.clone(), seen.clone());
        tasks.spawn(async move { client.count_lines(&path, &seen).await });
    }
    let (writer, run) = (client.clone(), run.to_owned());
    let started = Instant::now();
    let written = load::run(16, time, move |worker, n| {
        let (client, run) = (writer.clone(), run.clone());
        async move { Operation::Update.once(&client, &run, worker, n).await }
    })
    .await;
    let expected = (written.per_second * time.as_secs_f64()) as usize * watchers;
    let deadline = Instant::now() + Duration::from_secs(30);
    while seen.load(Ordering::Relaxed) < expected * 99 / 100 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(seen.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

fn count_items(list: &[u8]) -> usize {
    let list: serde_json::Value = serde_json::from_slice(list).unwrap_or_default();
    list["items"].as_array().map_or(0, Vec::len)
}

fn continue_of(list: &[u8]) -> Option<String> {
    let list: serde_json::Value = serde_json::from_slice(list).ok()?;
    list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned)
}
