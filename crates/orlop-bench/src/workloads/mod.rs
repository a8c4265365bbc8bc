//! Workloads: the time from `kubectl create deployment` to a ready pod and its parts, many pods at once beside a polite
//! client, and the cost of a node that has nothing to do. With a peer, the same with its controllers and scheduler in place
//! of the server's own; the node stays.

mod peer;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::{process::Command, sync::mpsc, task::JoinHandle, time::timeout};

use crate::{
    api::{CONFIG_MAPS, Server},
    client::Client,
    load::Measured,
    report::{Better, Report},
};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";
const POLITE: &str = "/api/v1/namespaces/default/configmaps/polite";
/// Time between two requests of the polite client.
const PACE: Duration = Duration::from_millis(5);
/// Time for a node to register, and for a pod to come up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for a server to settle before its idle cost is measured.
const SETTLE: Duration = Duration::from_secs(15);

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// From `kubectl create deployment` to a ready pod.
    Deployment,
    /// Many pods at once.
    Many,
    /// A node without pods, beside a server without a node.
    Idle,
}

/// Plan of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    /// Deployments that are created one after the other.
    pub(crate) deployments: usize,
    /// Pods of the part `many`.
    pub(crate) pods: usize,
    /// Time limit of the part `many`.
    pub(crate) deadline: Duration,
    /// Time in which idle servers are watched.
    pub(crate) idle: Duration,
    /// Programs that do the controllers' work instead.
    pub(crate) peer: Option<peer::Programs>,
}

/// Figures of one contender: name, unit and value. All are better the lower they are.
type Figures = Vec<(String, &'static str, f64)>;

/// Reports figures, beside those of the peer where there are some.
fn add(report: &mut Report, ours: Figures, theirs: &Figures) {
    for (name, unit, value) in ours {
        match theirs.iter().find(|(known, ..)| *known == name) {
            Some((.., peer)) => report.beside(name, unit, Better::Lower, value, peer::NAME, *peer),
            None => report.alone(name, unit, value),
        }
    }
}

/// Measures a server with a node.
pub(crate) async fn run(
    report: &mut Report,
    program: &Path,
    folder: &Path,
    plan: &Plan,
) -> anyhow::Result<()> {
    for part in &plan.parts {
        match part {
            Part::Deployment => {
                let ours = deployments(program, folder, plan.deployments, None).await?;
                let theirs = match &plan.peer {
                    Some(peer) => deployments(program, folder, plan.deployments, Some(peer)).await?,
                    None => Figures::new(),
                };
                add(report, ours, &theirs);
            }
            Part::Many => {
                let ours = many(program, folder, plan, None).await?;
                let theirs = match &plan.peer {
                    Some(peer) => many(program, folder, plan, Some(peer)).await?,
                    None => Figures::new(),
                };
                add(report, ours, &theirs);
            }
            Part::Idle => idle(report, program, folder, plan.idle).await?,
        }
    }
    Ok(())
}

/// A server with a node, and the programs of the peer if they do the controllers' work.
struct Cluster {
    server: NodeServer,
    client: Client,
    peer: peer::Running,
}

/// A server with a node. Killed, it would leave its containers behind, to be taken up again.
struct NodeServer(Server);

impl std::ops::Deref for NodeServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Drop for NodeServer {
    fn drop(&mut self) {
        self.0.stop(PATIENCE);
    }
}

/// Starts a server with a node, and waits until pods can be bound to it.
async fn start(
    program: &Path,
    folder: &Path,
    pods: usize,
    peer: Option<&peer::Programs>,
) -> anyhow::Result<Cluster> {
    // A range of its own: other clusters may run on this machine.
    let range = format!("127.{}.0.0/16", 64 + std::process::id() % 32);
    let pods = (pods + 10).to_string();
    let mut options = vec!["--node", "--node-name", "bench", "--pod-range", &range, "--max-pods", &pods];
    options.extend(peer.map(|_| peer::CONTROLLERS));
    let server = NodeServer(Server::start_with(program, folder, &options)?);
    let client = Client::connect(&server.kubeconfig, 4).await?;
    let peer = peer.map(|peer| peer.start(&server.kubeconfig)).transpose()?.unwrap_or_default();
    wait_for_node(&client).await?;
    Ok(Cluster { server, client, peer })
}

/// Waits until pods can be bound to the node.
async fn wait_for_node(client: &Client) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let nodes = read(client, NODES).await?;
        let node = &nodes["items"][0];
        let is_ready = node["status"]["conditions"].as_array().is_some_and(|conditions| {
            conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        });
        let is_tainted = node["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
        if is_ready && !is_tainted {
            return Ok(());
        }
        ensure!(started.elapsed() < PATIENCE, "the node does not become ready: {node}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs one pod, so that every controller has begun.
async fn warm_up(client: &Client) -> anyhow::Result<()> {
    let (status, _) = client.post(DEPLOYMENTS, &deployment("first", 1)).await?;
    ensure!(status == 201, "cannot create a Deployment: {status}");
    let path = format!("{DEPLOYMENTS}/first");
    let started = Instant::now();
    while read(client, &path).await?["status"]["readyReplicas"] != 1 {
        ensure!(started.elapsed() < PATIENCE, "no pod becomes ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.delete(&path).await?;
    gone(client, PATIENCE).await
}

/// Waits until there are no pods.
async fn gone(client: &Client, limit: Duration) -> anyhow::Result<()> {
    let started = Instant::now();
    while !read(client, &format!("{PODS}?limit=1")).await?["items"].as_array().is_none_or(Vec::is_empty) {
        ensure!(started.elapsed() < limit, "the pods do not go");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Returns a Deployment of `sleep`.
fn deployment(name: &str, replicas: usize) -> Value {
    let container = json!({"name": "sleep", "image": "local/sleep", "command": ["sleep", "100000"]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}}})
}

async fn read(client: &Client, path: &str) -> anyhow::Result<Value> {
    let (status, body) = client.get(path).await?;
    ensure!(status == 200, "GET {path}: {status}");
    Ok(serde_json::from_slice(&body)?)
}

// === kubectl create deployment ===

/// Steps from the command to a ready pod, in order.
const STEPS: [&str; 7] = [
    "the Deployment is stored",
    "the ReplicaSet is stored",
    "the pod is stored",
    "the pod is bound",
    "the pod runs and is ready",
    "the Deployment is available",
    "kubectl has ended",
];

async fn deployments(
    program: &Path,
    folder: &Path,
    count: usize,
    peer: Option<&peer::Programs>,
) -> anyhow::Result<Figures> {
    let own = tempfile::tempdir_in(folder)?;
    let Cluster { server, client, peer: _peer } = start(program, own.path(), count, peer).await?;
    let kubectl = orlop_testbed::debian::kubectl().map_err(|error| anyhow::anyhow!("{error}"))?;
    let (sender, mut events) = mpsc::unbounded_channel();
    let watches: Vec<Watch> = [DEPLOYMENTS, REPLICA_SETS, PODS]
        .into_iter()
        .map(|path| Watch::start(client.clone(), path, sender.clone()))
        .collect();
    // The first has to fill kubectl's cache of discovery.
    one(&kubectl, &server, &mut events, "warm-up").await?;
    let mut all: Vec<[Duration; STEPS.len()]> = Vec::new();
    for number in 0..count {
        all.push(one(&kubectl, &server, &mut events, &format!("web-{number}")).await?);
    }
    drop(watches);
    let ready = 4;
    let mut figures = Figures::new();
    for (step, name) in STEPS.iter().enumerate() {
        let times = all.iter().map(|times| times[step]).collect();
        let measured = Measured::new(times, 0, PATIENCE);
        let name = format!("kubectl create deployment: until {name}");
        figures.push((format!("{name}, p50"), "ms", measured.quantile_ms(0.5)));
        if step == ready {
            figures.push((format!("{name}, p99"), "ms", measured.quantile_ms(0.99)));
        }
    }
    // Without kubectl's own start: from the moment that the API has the Deployment.
    let within = all.iter().map(|times| times[ready].saturating_sub(times[0])).collect();
    let measured = Measured::new(within, 0, PATIENCE);
    let name = "Deployment stored until its pod is ready";
    figures.push((format!("{name}, p50"), "ms", measured.quantile_ms(0.5)));
    figures.push((format!("{name}, p99"), "ms", measured.quantile_ms(0.99)));
    Ok(figures)
}

/// A change of an object, with the time at which it arrived.
type Change = (Instant, &'static str, Value);

/// Creates a deployment with kubectl. Returns the time of every step since its start.
async fn one(
    kubectl: &Path,
    server: &Server,
    events: &mut mpsc::UnboundedReceiver<Change>,
    name: &str,
) -> anyhow::Result<[Duration; STEPS.len()]> {
    while events.try_recv().is_ok() {}
    let started = Instant::now();
    let mut process = Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(&server.kubeconfig)
        .args(["create", "deployment", name, "--image=local/sleep", "--", "sleep", "100000"])
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start kubectl")?;
    let mut times: [Option<Duration>; STEPS.len()] = [None; STEPS.len()];
    while times.iter().any(Option::is_none) {
        let next = async {
            tokio::select! {
                Some(change) = events.recv() => Ok::<_, anyhow::Error>(Some(change)),
                status = process.wait(), if times[6].is_none() => {
                    ensure!(status?.success(), "kubectl failed");
                    Ok(None)
                }
            }
        };
        let Some((at, kind, object)) = timeout(PATIENCE, next).await.context("no pod became ready")?? else {
            times[6] = Some(started.elapsed());
            continue;
        };
        if object["metadata"]["labels"]["app"] != json!(name) {
            continue;
        }
        let is_true = |condition: &str| {
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|known| known["type"] == json!(condition) && known["status"] == "True")
        };
        let mut reached = |step: usize| {
            times[step].get_or_insert(at.duration_since(started));
        };
        match kind {
            DEPLOYMENTS => {
                reached(0);
                if is_true("Available") {
                    reached(5);
                }
            }
            REPLICA_SETS => reached(1),
            _ => {
                reached(2);
                if object["spec"]["nodeName"].is_string() {
                    reached(3);
                }
                if is_true("Ready") {
                    reached(4);
                }
            }
        }
    }
    Ok(times.map(Option::unwrap_or_default))
}

/// A watch whose changes go to a queue, until dropped.
struct Watch(JoinHandle<()>);

impl Watch {
    fn start(client: Client, path: &'static str, sender: mpsc::UnboundedSender<Change>) -> Self {
        Self(tokio::spawn(async move {
            if let Err(error) = follow(&client, path, &sender).await {
                eprintln!("the watch of {path} ended: {error}");
            }
        }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follow(
    client: &Client,
    path: &'static str,
    sender: &mpsc::UnboundedSender<Change>,
) -> anyhow::Result<()> {
    let mut body = client.open(&format!("{path}?watch=true")).await?.into_body();
    let mut pending = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let at = Instant::now();
        pending.extend_from_slice(&data);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let mut event: Value = serde_json::from_slice(&line)?;
            if sender.send((at, path, event["object"].take())).is_err() {
                return Ok(());
            }
        }
    }
    bail!("the server closed it")
}

// === Many pods ===

async fn many(
    program: &Path,
    folder: &Path,
    plan: &Plan,
    peer: Option<&peer::Programs>,
) -> anyhow::Result<Figures> {
    let own = tempfile::tempdir_in(folder)?;
    let Cluster { server, client, peer } = start(program, own.path(), plan.pods, peer).await?;
    warm_up(&client).await?;
    let polite = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "polite"}, "data": {"value": "x"}});
    let (status, _) = client.post(CONFIG_MAPS, &polite).await?;
    ensure!(status == 201, "cannot create a ConfigMap: {status}");
    let idle_mib = server.resident_mib();
    let cpu_before = server.cpu_seconds() + peer.cpu_seconds();
    let is_over = Arc::new(AtomicBool::new(false));
    let beside =
        tokio::spawn(be_polite(Client::connect(&server.kubeconfig, 1).await?, polite, is_over.clone()));
    let started = Instant::now();
    let (status, _) = client.post(DEPLOYMENTS, &deployment("many", plan.pods)).await?;
    ensure!(status == 201, "cannot create a Deployment: {status}");
    let path = format!("{DEPLOYMENTS}/many");
    let ready = loop {
        let found = read(&client, &path).await?["status"]["readyReplicas"].as_u64().unwrap_or(0);
        let ready = usize::try_from(found).unwrap_or(0);
        if ready >= plan.pods || started.elapsed() > plan.deadline {
            break ready;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let took = started.elapsed();
    is_over.store(true, Relaxed);
    let requests = beside.await?;
    let name = format!("{} pods of sleep", plan.pods);
    ensure!(ready >= plan.pods, "only {ready} of {name} are ready after {took:?}");
    let others = format!("{name}: reads and writes of another client");
    let processor = server.cpu_seconds() + peer.cpu_seconds() - cpu_before;
    let mut figures = vec![
        (format!("{name}: until all are ready"), "s", took.as_secs_f64()),
        (format!("{others}, p50"), "ms", requests.quantile_ms(0.5)),
        (format!("{others}, p99"), "ms", requests.quantile_ms(0.99)),
        (format!("{others}, slowest"), "ms", requests.quantile_ms(1.0)),
        (format!("{name}: errors of another client"), "", requests.errors as f64),
        (format!("{name}: processor time of server and controllers"), "s", processor),
        (
            format!("{name}: memory of server and controllers"),
            "MiB",
            server.resident_mib() + peer.resident_mib(),
        ),
        (format!("{name}: memory of the server before"), "MiB", idle_mib),
    ];
    client.delete(&path).await?;
    let started = Instant::now();
    gone(&client, plan.deadline).await?;
    figures.push((format!("{name}: until all are gone"), "s", started.elapsed().as_secs_f64()));
    Ok(figures)
}

/// Reads and writes a small object at a steady pace.
async fn be_polite(client: Client, object: Value, is_over: Arc<AtomicBool>) -> Measured {
    let started = Instant::now();
    let (mut times, mut errors) = (Vec::new(), 0);
    while !is_over.load(Relaxed) {
        for is_write in [false, true] {
            let begun = Instant::now();
            let answer = if is_write { client.put(POLITE, &object).await } else { client.get(POLITE).await };
            match answer {
                Ok((200, _)) => times.push(begun.elapsed()),
                _ => errors += 1,
            }
            tokio::time::sleep(PACE).await;
        }
    }
    Measured::new(times, errors, started.elapsed())
}

// === Idle ===

async fn idle(report: &mut Report, program: &Path, folder: &Path, time: Duration) -> anyhow::Result<()> {
    let without = tempfile::tempdir_in(folder)?;
    let plain = Server::start_with(program, without.path(), &["--controllers=*"])?;
    let with = tempfile::tempdir_in(folder)?;
    let Cluster { server: node, client, peer: _ } = start(program, with.path(), 110, None).await?;
    drop(client);
    tokio::time::sleep(SETTLE).await;
    let before = [plain.cpu_seconds(), node.cpu_seconds()];
    tokio::time::sleep(time).await;
    let after = [plain.cpu_seconds(), node.cpu_seconds()];
    let [plain_percent, node_percent] =
        [0, 1].map(|index| (after[index] - before[index]) * 100.0 / time.as_secs_f64());
    let (plain_mib, node_mib) = (plain.resident_mib(), node.resident_mib());
    report.alone("idle: server with controllers", "MiB", plain_mib);
    report.alone("idle: server with controllers and a node", "MiB", node_mib);
    report.alone("idle: node", "MiB", node_mib - plain_mib);
    report.alone("idle: server with controllers", "% core", plain_percent);
    report.alone("idle: server with controllers and a node", "% core", node_percent);
    report.alone("idle: node", "% core", node_percent - plain_percent);
    Ok(())
}

/// Returns the parts to run: all of them unless some are named.
pub(crate) fn parts(only: Vec<Part>) -> Vec<Part> {
    if only.is_empty() { <Part as clap::ValueEnum>::value_variants().to_vec() } else { only }
}

/// Options on the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The orlop to measure; the one beside this program by default.
    #[arg(long, value_name = "FILE")]
    pub(crate) orlop: Option<PathBuf>,
    /// Deployments that are created one after the other.
    #[arg(long, default_value_t = 30)]
    deployments: usize,
    /// Pods at once.
    #[arg(long, default_value_t = 1000)]
    pods: usize,
    /// Seconds that many pods may take.
    #[arg(long, default_value_t = 300.0)]
    deadline: f64,
    /// A kube-controller-manager to measure beside, with --peer-scheduler.
    #[arg(long, value_name = "FILE", requires = "peer_scheduler")]
    peer_controller_manager: Option<PathBuf>,
    /// A kube-scheduler to measure beside, with --peer-controller-manager.
    #[arg(long, value_name = "FILE", requires = "peer_controller_manager")]
    peer_scheduler: Option<PathBuf>,
    /// Only these parts; all of them by default.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

impl Options {
    /// Returns the plan of a run.
    pub(crate) fn plan(self, seconds: f64) -> Plan {
        Plan {
            parts: parts(self.only),
            deployments: self.deployments,
            pods: self.pods,
            deadline: Duration::from_secs_f64(self.deadline),
            idle: Duration::from_secs_f64(seconds.max(20.0)),
            peer: self
                .peer_controller_manager
                .zip(self.peer_scheduler)
                .map(|(controller_manager, scheduler)| peer::Programs { controller_manager, scheduler }),
        }
    }
}
