//! Fairness: a polite client beside a flood of another user, with flow control and without, and beside another API
//! server's where there is one.
//!
//! The flood is a process of its own with the least priority: on a machine of its own it would take no processor time
//! from the server.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    api::{CONFIG_MAPS, Server},
    client::Client,
    load::{Measured, least_priority},
    report::{Better, Report},
};

/// Users of the two flows. Neither is an administrator, who is exempt.
const POLITE_USER: &str = "polite";
const FLOODING_USER: &str = "flooding";
/// The object that the polite client reads and writes.
const POLITE: &str = "/api/v1/namespaces/default/configmaps/polite";
/// The collection of the flood.
const NAMESPACES: &str = "/api/v1/namespaces";
const FLOODED: &str = "/api/v1/namespaces/flooded/configmaps";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// Time between two requests of the polite client.
const PACE: Duration = Duration::from_millis(2);
/// Time for a flood to begin.
const WARM_UP: Duration = Duration::from_secs(1);
/// Clients of a flood, and their connections.
const FLOODING_CLIENTS: usize = 64;
const FLOODING_CONNECTIONS: usize = 8;
/// Pause of a flooding client that was rejected. A polite one would wait for a second or more.
const REJECTED_PAUSE: Duration = Duration::from_millis(20);
const VALUE_BYTES: usize = 1024;

/// Kinds of floods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Flood {
    /// Lists of a whole collection.
    Lists,
    /// Creates.
    Writes,
    /// Watches that begin with the whole collection.
    Watches,
}

impl Flood {
    fn name(self) -> &'static str {
        match self {
            Self::Lists => "lists",
            Self::Writes => "writes",
            Self::Watches => "watches",
        }
    }
}

/// Plan of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) time: Duration,
    pub(crate) floods: Vec<Flood>,
    /// Objects that the flood lists.
    pub(crate) objects: usize,
    /// Kubeconfig of another API server.
    pub(crate) peer: Option<PathBuf>,
}

/// Measures a server with flow control, one without, and the other API server.
pub(crate) async fn run(
    report: &mut Report,
    program: &Path,
    folder: &Path,
    plan: &Plan,
) -> anyhow::Result<()> {
    let unlimited = [
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
    ];
    for (name, options) in [("with flow control", &[][..]), ("without", &unlimited[..])] {
        let own = tempfile::tempdir_in(folder)?;
        let server = Server::start_with(program, own.path(), options)?;
        measure(report, &format!("orlop {name}"), &server.kubeconfig, plan).await?;
    }
    if let Some(kubeconfig) = &plan.peer {
        measure(report, "the other API server", kubeconfig, plan).await?;
    }
    Ok(())
}

async fn measure(report: &mut Report, server: &str, kubeconfig: &Path, plan: &Plan) -> anyhow::Result<()> {
    let client = prepare(kubeconfig, plan.objects).await?;
    let alone = Polite::measure(&client, plan.time).await?;
    for (what, measured) in [("reads", &alone.reads), ("writes", &alone.writes)] {
        let name = format!("fairness: {server}: polite {what} alone, p99");
        report.alone(name, "ms", measured.quantile_ms(0.99));
    }
    for flood in &plan.floods {
        let time = WARM_UP + plan.time + WARM_UP;
        // Killed with this future, should the measurement fail.
        let flooding = least_priority()?
            .arg("flood")
            .arg(kubeconfig)
            .arg(flood.name())
            .args(["--seconds", &time.as_secs_f64().to_string()])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the flood")?;
        tokio::time::sleep(WARM_UP).await;
        let beside = Polite::measure(&client, plan.time).await?;
        let counts = String::from_utf8(flooding.wait_with_output().await?.stdout)?;
        let flood = flood.name();
        let pairs = [("reads", &alone.reads, &beside.reads), ("writes", &alone.writes, &beside.writes)];
        for (what, alone, beside) in pairs {
            let name = format!("fairness: {server}: polite {what} beside {flood}, p99");
            let (value, peer) = (beside.quantile_ms(0.99), alone.quantile_ms(0.99));
            report.beside(name, "ms", Better::Lower, value, "the same alone", peer);
            if beside.errors > 0 {
                let name = format!("fairness: {server}: polite {what} beside {flood}, errors");
                report.alone(name, "", beside.errors as f64);
            }
        }
        for (what, count) in ["answered", "rejected"].iter().zip(counts.split_whitespace()) {
            let count: f64 = count.parse().unwrap_or(f64::NAN);
            let name = format!("fairness: {server}: flood of {flood} {what}");
            report.alone(name, "1/s", count / time.as_secs_f64());
        }
    }
    Ok(())
}

/// Lets every user do everything, and creates the objects. Returns the polite client.
async fn prepare(kubeconfig: &Path, objects: usize) -> anyhow::Result<Client> {
    let admin = Client::connect(kubeconfig, 4).await?;
    let created = |code: u16| code == 201 || code == 409;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "fairness"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}]});
    ensure!(created(admin.post(BINDINGS, &binding).await?.0), "cannot bind");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flooded"}});
    ensure!(created(admin.post(NAMESPACES, &namespace).await?.0), "cannot create the namespace");
    ensure!(created(admin.post(CONFIG_MAPS, &config_map("polite")).await?.0), "cannot create an object");
    let creates = (0..objects).map(|number| {
        let admin = admin.clone();
        async move {
            let (code, _) = admin.post(FLOODED, &config_map(&format!("listed-{number}"))).await?;
            ensure!(created(code), "cannot create an object: {code}");
            Ok(())
        }
    });
    stream::iter(creates).buffer_unordered(FLOODING_CLIENTS).try_collect::<Vec<()>>().await?;
    Ok(Client::connect(kubeconfig, 1).await?.impersonating(POLITE_USER))
}

fn config_map(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"value": "x".repeat(VALUE_BYTES)}})
}

/// A client that reads and writes one small object, at a steady pace.
struct Polite {
    reads: Measured,
    writes: Measured,
}

impl Polite {
    async fn measure(client: &Client, time: Duration) -> anyhow::Result<Self> {
        let started = Instant::now();
        let mut reads = (Vec::new(), 0);
        let mut writes = (Vec::new(), 0);
        let object = config_map("polite");
        while started.elapsed() < time {
            let begun = Instant::now();
            match client.get(POLITE).await {
                Ok((200, _)) => reads.0.push(begun.elapsed()),
                _ => reads.1 += 1,
            }
            tokio::time::sleep(PACE).await;
            let begun = Instant::now();
            match client.put(POLITE, &object).await {
                Ok((200, _)) => writes.0.push(begun.elapsed()),
                _ => writes.1 += 1,
            }
            tokio::time::sleep(PACE).await;
        }
        ensure!(!reads.0.is_empty() && !writes.0.is_empty(), "the polite client got no answer");
        let took = started.elapsed();
        Ok(Self {
            reads: Measured::new(reads.0, reads.1, took),
            writes: Measured::new(writes.0, writes.1, took),
        })
    }
}

/// Floods a server for a while. Prints the numbers of requests that were answered and rejected.
pub(crate) async fn flood(kubeconfig: &Path, flood: Flood, time: Duration) -> anyhow::Result<()> {
    let client = Client::connect(kubeconfig, FLOODING_CONNECTIONS).await?.impersonating(FLOODING_USER);
    let (answered, rejected) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let is_over = Arc::new(AtomicBool::new(false));
    let run = format!("{}-{}", std::process::id(), time.as_millis());
    let mut clients = JoinSet::new();
    for number in 0..FLOODING_CLIENTS {
        let (client, answered, rejected, is_over) =
            (client.clone(), answered.clone(), rejected.clone(), is_over.clone());
        let run = run.clone();
        clients.spawn(async move {
            for count in 0u64.. {
                if is_over.load(Relaxed) {
                    return;
                }
                let name = format!("written-{run}-{number}-{count}");
                match request(&client, flood, &name).await {
                    Ok(429) => {
                        rejected.fetch_add(1, Relaxed);
                        tokio::time::sleep(REJECTED_PAUSE).await;
                    }
                    Ok(_) => {
                        answered.fetch_add(1, Relaxed);
                    }
                    // The server may close a connection of a client that is too slow.
                    Err(_) => tokio::time::sleep(REJECTED_PAUSE).await,
                }
            }
        });
    }
    tokio::time::sleep(time).await;
    is_over.store(true, Relaxed);
    clients.shutdown().await;
    println!("{} {}", answered.load(Relaxed), rejected.load(Relaxed));
    Ok(())
}

/// Sends one request of a flood. Returns the code of its response.
async fn request(client: &Client, flood: Flood, name: &str) -> anyhow::Result<u16> {
    Ok(match flood {
        Flood::Lists => read(client, FLOODED).await?,
        Flood::Watches => {
            let path = format!("{FLOODED}?watch=1&resourceVersion=0&timeoutSeconds=1");
            read(client, &path).await?
        }
        Flood::Writes => client.post(FLOODED, &config_map(name)).await?.0,
    })
}

/// Reads a response to its end, and keeps none of it.
async fn read(client: &Client, path: &str) -> anyhow::Result<u16> {
    let response = client.open(path).await?;
    let code = response.status().as_u16();
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let _: Option<Bytes> = frame?.into_data().ok();
    }
    Ok(code)
}
