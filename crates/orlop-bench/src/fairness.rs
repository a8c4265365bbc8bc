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
use tokio::{sync::mpsc, task::JoinSet};

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
/// A list of it alone.
const POLITE_LIST: &str = "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dpolite";
/// The collection of the flood.
const NAMESPACES: &str = "/api/v1/namespaces";
const FLOODED: &str = "/api/v1/namespaces/flooded/configmaps";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// Time between two requests of the polite client.
const PACE: Duration = Duration::from_millis(2);
/// Alone and beside a flood in turns, so that a slow moment of the machine meets both.
const ROUNDS: u32 = 4;
/// Time in which the watch hears of a change.
const EVENT_DEADLINE: Duration = Duration::from_secs(60);
/// Time for a flood to begin, and to end.
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
    prepare(kubeconfig, plan.objects).await?;
    let mut polite = Polite::connect(kubeconfig).await?;
    for &flood in &plan.floods {
        let slice = plan.time / ROUNDS;
        let (mut alone, mut beside) = (Samples::default(), Samples::default());
        let (mut answered, mut rejected) = (0.0, 0.0);
        for _ in 0..ROUNDS {
            polite.sample(slice, &mut alone).await?;
            let time = WARM_UP + slice + WARM_UP;
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
            polite.sample(slice, &mut beside).await?;
            let counts = String::from_utf8(flooding.wait_with_output().await?.stdout)?;
            let mut counts = counts.split_whitespace().map(|count| count.parse().unwrap_or(f64::NAN));
            answered += counts.next().unwrap_or(f64::NAN) / time.as_secs_f64();
            rejected += counts.next().unwrap_or(f64::NAN) / time.as_secs_f64();
            tokio::time::sleep(WARM_UP).await;
        }
        let flood = flood.name();
        let errors = beside.errors;
        for ((what, alone), (_, beside)) in
            alone.measured(plan.time).into_iter().zip(beside.measured(plan.time))
        {
            for (quantile, of) in [("p50", 0.5), ("p99", 0.99)] {
                let name = format!("fairness: {server}: polite {what} beside {flood}, {quantile}");
                let (value, peer) = (beside.quantile_ms(of), alone.quantile_ms(of));
                report.beside(name, "ms", Better::Lower, value, "the same alone", peer);
            }
        }
        if errors > 0 {
            report.alone(format!("fairness: {server}: polite beside {flood}, errors"), "", errors as f64);
        }
        for (what, rate) in [("answered", answered), ("rejected", rejected)] {
            let name = format!("fairness: {server}: flood of {flood} {what}");
            report.alone(name, "1/s", rate / f64::from(ROUNDS));
        }
    }
    Ok(())
}

/// Lets every user do everything, and creates the objects.
async fn prepare(kubeconfig: &Path, objects: usize) -> anyhow::Result<()> {
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
    Ok(())
}

fn config_map(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"value": "x".repeat(VALUE_BYTES)}})
}

/// A client that reads, writes, lists and watches one small object, at a steady pace.
struct Polite {
    client: Client,
    /// Resource versions of the object, as the watch hears of them.
    events: mpsc::UnboundedReceiver<(String, Instant)>,
    writes: u64,
}

/// Latencies of a polite client's requests, and of its changes until its watch hears of them.
#[derive(Default)]
struct Samples {
    reads: Vec<Duration>,
    writes: Vec<Duration>,
    lists: Vec<Duration>,
    events: Vec<Duration>,
    errors: usize,
}

impl Samples {
    fn measured(self, time: Duration) -> [(&'static str, Measured); 4] {
        let measured = |latencies| Measured::new(latencies, 0, time);
        [
            ("reads", measured(self.reads)),
            ("writes", measured(self.writes)),
            ("lists", measured(self.lists)),
            ("watch events", measured(self.events)),
        ]
    }
}

impl Polite {
    /// Connects, and starts to watch.
    async fn connect(kubeconfig: &Path) -> anyhow::Result<Self> {
        let client = Client::connect(kubeconfig, 1).await?.impersonating(POLITE_USER);
        let mut body = client.open(&format!("{POLITE_LIST}&watch=1")).await?.into_body();
        let (sender, events) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut received = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(data) = frame.into_data() else { continue };
                received.extend_from_slice(&data);
                while let Some(end) = received.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = received.drain(..=end).collect();
                    let version = resource_version(line.as_slice(), "/object/metadata/resourceVersion");
                    if sender.send((version, Instant::now())).is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Self { client, events, writes: 0 })
    }

    /// Takes samples for a while.
    async fn sample(&mut self, time: Duration, samples: &mut Samples) -> anyhow::Result<()> {
        let started = Instant::now();
        while started.elapsed() < time {
            for (path, latencies) in [(POLITE, &mut samples.reads), (POLITE_LIST, &mut samples.lists)] {
                let begun = Instant::now();
                match self.client.get(path).await {
                    Ok((200, _)) => latencies.push(begun.elapsed()),
                    _ => samples.errors += 1,
                }
                tokio::time::sleep(PACE).await;
            }
            self.writes += 1;
            let mut object = config_map("polite");
            // An update that changes nothing would not be written.
            object["data"]["write"] = self.writes.to_string().into();
            let begun = Instant::now();
            match self.client.put(POLITE, &object).await {
                Ok((200, body)) => {
                    samples.writes.push(begun.elapsed());
                    let version = resource_version(&body, "/metadata/resourceVersion");
                    let heard = tokio::time::timeout(EVENT_DEADLINE, self.heard(&version)).await;
                    samples.events.push(heard.context("the watch does not hear of a change")?? - begun);
                }
                _ => samples.errors += 1,
            }
            tokio::time::sleep(PACE).await;
        }
        Ok(())
    }

    /// Waits until the watch hears of a change.
    async fn heard(&mut self, version: &str) -> anyhow::Result<Instant> {
        loop {
            let (heard, at) = self.events.recv().await.context("the watch has ended")?;
            if heard == version {
                return Ok(at);
            }
        }
    }
}

fn resource_version(object: &[u8], pointer: &str) -> String {
    let value: serde_json::Value = serde_json::from_slice(object).unwrap_or_default();
    value.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
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
