//! Composition: graphs of ConfigMaps on a server of ours, by `orlop compose run` and, where it is given, by kro's
//! controller. Each shape has a server and a controller of its own, so that memory and requests are its alone.

use std::{
    collections::HashSet,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::{
    api::Server,
    client::Client,
    load,
    report::{Better, Report},
};

const PEER: &str = "kro";
const DEFINITIONS: &str = "/apis/kro.run/v1alpha1/resourcegraphdefinitions";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Requests at once when instances are created.
const AT_ONCE: usize = 16;
/// Time in which an idle controller is watched.
const IDLE: Duration = Duration::from_secs(10);
/// Time for a controller to come up, or a definition to be served.
const PATIENCE: Duration = Duration::from_secs(60);

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Chains of depth 1, 5 and 20, and a fan of 50, with one instance.
    One,
    /// The same with 200 instances.
    Many,
    /// Requests and processor time while nothing changes, and after a restart.
    Idle,
    /// Memory with 200 definitions of 100 instances each (ours only).
    Memory,
}

/// Plan of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    /// kro's controller.
    pub(crate) peer: Option<PathBuf>,
    /// kro's CRDs, which its controller does not install itself.
    pub(crate) peer_crds: Vec<PathBuf>,
    /// Instances of the part `many`.
    pub(crate) instances: usize,
    /// Definitions, and instances of each, of the part `memory`.
    pub(crate) definitions: usize,
    pub(crate) instances_each: usize,
    /// Time limit of one shape.
    pub(crate) deadline: Duration,
}

/// A graph.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Chain(usize),
    Fan(usize),
}

const SHAPES: [Shape; 4] = [Shape::Chain(1), Shape::Chain(5), Shape::Chain(20), Shape::Fan(50)];

impl Shape {
    fn name(self) -> String {
        match self {
            Self::Chain(depth) => format!("chain of {depth}"),
            Self::Fan(width) => format!("fan of {width}"),
        }
    }

    /// The definition of this shape under a name.
    fn definition(self, name: &str, kind: &str) -> Value {
        let (Self::Chain(count) | Self::Fan(count)) = self;
        let node = |index: usize| {
            let value = match self {
                Self::Chain(_) if index > 0 => format!("${{n{}.data.value}}", index - 1),
                _ => "${schema.spec.value}".to_owned(),
            };
            json!({"id": format!("n{index}"), "template": {
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("${{schema.metadata.name}}-{index}")}, "data": {"value": value}}})
        };
        let nodes: Vec<Value> = (0..count).map(node).collect();
        json!({
            "apiVersion": "kro.run/v1alpha1", "kind": "ResourceGraphDefinition", "metadata": {"name": name},
            "spec": {
                "schema": {"apiVersion": "v1alpha1", "kind": kind, "spec": {"value": "string | default=\"x\""},
                    "status": {"last": format!("${{n{}.metadata.name}}", count - 1)}},
                "resources": nodes}})
    }
}

/// A controller and the server that it works on.
struct Contender {
    process: Child,
    command: Vec<String>,
    log: PathBuf,
    server: Server,
    client: Client,
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Contender {
    async fn start(program: &Path, folder: &Path, peer: Option<(&Path, &[PathBuf])>) -> anyhow::Result<Self> {
        let server = Server::start(program, folder)?;
        let client = Client::connect(&server.kubeconfig, 4).await?;
        let command = match peer {
            None => vec![
                program.display().to_string(),
                "compose".into(),
                "run".into(),
                "--leader-elect=false".into(),
            ],
            Some((peer, crds)) => {
                for file in crds {
                    let text =
                        std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
                    let (code, body) = client.whole("POST", CRDS, "application/yaml", text.into()).await?;
                    ensure!(code == 201, "{}: {}", file.display(), String::from_utf8_lossy(&body));
                }
                let metrics =
                    ["--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"];
                let command = [peer.display().to_string()];
                command.into_iter().chain(metrics.map(str::to_owned)).collect()
            }
        };
        let log = folder.join("controller.log");
        let process = spawn(&command, &server.kubeconfig, &log)?;
        let contender = Self { process, command, log, server, client };
        contender
            .until("the controller is up", || async { Ok(contender.client.get(DEFINITIONS).await?.0 == 200) })
            .await?;
        Ok(contender)
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        self.process = spawn(&self.command, &self.server.kubeconfig, &self.log)?;
        Ok(())
    }

    async fn until<F: Future<Output = anyhow::Result<bool>>>(
        &self,
        what: &str,
        look: impl Fn() -> F,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !look().await? {
            if Instant::now() > deadline {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let tail: String = log.lines().rev().take(5).collect::<Vec<_>>().join("\n");
                bail!("{what}: not within {PATIENCE:?}; the controller says\n{tail}");
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn define(&self, shape: Shape, name: &str, kind: &str) -> anyhow::Result<()> {
        let (code, body) = self.client.post(DEFINITIONS, &shape.definition(name, kind)).await?;
        ensure!(code == 201, "{code}: {}", String::from_utf8_lossy(&body));
        let path = format!("{DEFINITIONS}/{name}");
        self.until("the definition is served", || async {
            let found: Value = serde_json::from_slice(&self.client.get(&path).await?.1)?;
            Ok(found["status"]["state"] == "Active")
        })
        .await
    }

    fn cpu_seconds(&self) -> f64 {
        load::processor_seconds(self.process.id())
    }

    fn resident_mib(&self) -> f64 {
        load::status_mib(&self.process.id().to_string(), "VmRSS")
    }

    fn peak_mib(&self) -> f64 {
        load::status_mib(&self.process.id().to_string(), "VmHWM")
    }

    /// Requests that the server has answered: all, and those that write.
    async fn requests(&self) -> anyhow::Result<(f64, f64)> {
        let (_, body) = self.client.get("/metrics").await?;
        let text = String::from_utf8_lossy(&body).into_owned();
        let (mut all, mut writes) = (0.0, 0.0);
        for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let count: f64 = line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0.0);
            all += count;
            let reads =
                ["GET", "LIST", "WATCH"].iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")));
            if !reads {
                writes += count;
            }
        }
        Ok((all, writes))
    }

    /// Creates instances and waits until all are ACTIVE. Returns how many are at the deadline, and the time taken.
    async fn compose(
        &self,
        path: &str,
        kind: &str,
        count: usize,
        deadline: Duration,
    ) -> anyhow::Result<(usize, Duration)> {
        let watching = self.client.open(&format!("{path}?watch=1")).await?;
        let began = Instant::now();
        let create = |index: usize| async move {
            let instance = json!({"apiVersion": "kro.run/v1alpha1", "kind": kind,
                "metadata": {"name": format!("i{index}")}, "spec": {}});
            let (code, body) = self.client.post(path, &instance).await?;
            ensure!(code == 201, "{code}: {}", String::from_utf8_lossy(&body));
            Ok(())
        };
        let creating = async {
            stream::iter(0..count).map(create).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await
        };
        let mut active = HashSet::new();
        let watch = async {
            let mut body = watching.into_body();
            let mut text: Vec<u8> = Vec::new();
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame?.into_data() else { continue };
                text.extend_from_slice(&data);
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line)?;
                    let object = &event["object"];
                    if object["status"]["state"] == "ACTIVE"
                        && let Some(name) = object["metadata"]["name"].as_str()
                    {
                        active.insert(name.to_owned());
                    }
                }
                if active.len() >= count {
                    return Ok(());
                }
            }
            bail!("the watch ended")
        };
        let both = async { tokio::try_join!(creating, watch).map(drop) };
        match timeout(deadline, both).await {
            Ok(done) => done?,
            Err(_) => return Ok((active.len(), deadline)),
        }
        Ok((count, began.elapsed()))
    }
}

fn spawn(command: &[String], kubeconfig: &Path, log: &Path) -> anyhow::Result<Child> {
    let (program, arguments) = command.split_first().context("no program")?;
    let log = File::options().create(true).append(true).open(log)?;
    Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {program}"))
}

/// Figures of one shape.
struct Figures {
    active: usize,
    time: Duration,
    requests: f64,
    writes: f64,
    cpu_s: f64,
    rss_mib: f64,
}

/// Runs the benchmark.
pub(crate) async fn run(
    report: &mut Report,
    program: &Path,
    folder: &Path,
    plan: &Plan,
) -> anyhow::Result<()> {
    for part in &plan.parts {
        match part {
            Part::One => shapes(report, program, folder, plan, 1).await?,
            Part::Many => shapes(report, program, folder, plan, plan.instances).await?,
            Part::Idle => idle(report, program, folder, plan).await?,
            Part::Memory => memory(report, program, folder, plan).await?,
        }
    }
    Ok(())
}

async fn shapes(
    report: &mut Report,
    program: &Path,
    folder: &Path,
    plan: &Plan,
    instances: usize,
) -> anyhow::Result<()> {
    for shape in SHAPES {
        let ours = measure(program, folder, None, shape, instances, plan.deadline).await?;
        let peer = match &plan.peer {
            Some(peer) => {
                let peer = Some((peer.as_path(), plan.peer_crds.as_slice()));
                Some(measure(program, folder, peer, shape, instances, plan.deadline).await?)
            }
            None => None,
        };
        let of = |count: usize| if count == 1 { String::new() } else { format!(" x {count}") };
        let name = format!("compose: {}{}", shape.name(), of(instances));
        let figure = |figures: &Figures, index: usize| match index {
            0 => figures.active as f64,
            1 => figures.time.as_secs_f64() * 1e3,
            2 => figures.requests,
            3 => figures.writes,
            4 => figures.cpu_s * 1e3,
            _ => figures.rss_mib,
        };
        let what = [
            ("instances ACTIVE at the end", "", Better::Higher),
            ("time to ACTIVE", "ms", Better::Lower),
            ("API requests", "", Better::Lower),
            ("writes", "", Better::Lower),
            ("processor time of the controller", "ms", Better::Lower),
            ("RSS of the controller", "MiB", Better::Lower),
        ];
        for (index, (what, unit, better)) in what.into_iter().enumerate() {
            let (name, value) = (format!("{name}, {what}"), figure(&ours, index));
            match &peer {
                Some(peer) => report.beside(name, unit, better, value, PEER, figure(peer, index)),
                None => report.alone(name, unit, value),
            }
        }
    }
    Ok(())
}

async fn measure(
    program: &Path,
    folder: &Path,
    peer: Option<(&Path, &[PathBuf])>,
    shape: Shape,
    instances: usize,
    deadline: Duration,
) -> anyhow::Result<Figures> {
    let own = tempfile::tempdir_in(folder)?;
    let contender = Contender::start(program, own.path(), peer).await?;
    contender.define(shape, "shape", "Shape").await?;
    let path = "/apis/kro.run/v1alpha1/namespaces/default/shapes";
    let (before, cpu) = (contender.requests().await?, contender.cpu_seconds());
    let (active, time) = contender.compose(path, "Shape", instances, deadline).await?;
    // The last status writes of other instances may still be under way.
    sleep(Duration::from_millis(200)).await;
    let (after, cpu_after) = (contender.requests().await?, contender.cpu_seconds());
    // Less what the benchmark asked itself: the instances, their watch, the metrics.
    let own_requests = instances as f64;
    Ok(Figures {
        active,
        time,
        requests: after.0 - before.0 - own_requests - 2.0,
        writes: after.1 - before.1 - own_requests,
        cpu_s: cpu_after - cpu,
        rss_mib: contender.resident_mib(),
    })
}

/// A settled controller, and a restarted one, while nothing changes.
async fn idle(report: &mut Report, program: &Path, folder: &Path, plan: &Plan) -> anyhow::Result<()> {
    let peer = plan.peer.as_deref().map(|peer| (peer, plan.peer_crds.as_slice()));
    let mut all = Vec::new();
    for peer in [Some(None), peer.map(Some)].into_iter().flatten() {
        let own = tempfile::tempdir_in(folder)?;
        let mut contender = Contender::start(program, own.path(), peer).await?;
        contender.define(Shape::Chain(5), "shape", "Shape").await?;
        let path = "/apis/kro.run/v1alpha1/namespaces/default/shapes";
        contender.compose(path, "Shape", plan.instances, plan.deadline).await?;
        sleep(IDLE).await;
        let (before, cpu) = (contender.requests().await?, contender.cpu_seconds());
        sleep(IDLE).await;
        let (after, cpu_after) = (contender.requests().await?, contender.cpu_seconds());
        contender.restart()?;
        sleep(IDLE).await;
        let restarted = contender.requests().await?;
        all.push([
            after.0 - before.0 - 1.0,
            after.1 - before.1,
            (cpu_after - cpu) * 1e3,
            restarted.1 - after.1,
            contender.peak_mib(),
        ]);
    }
    let names = [
        ("requests while nothing changes", "/10s"),
        ("writes while nothing changes", "/10s"),
        ("processor time while nothing changes", "ms/10s"),
        ("writes after a restart", ""),
        ("peak RSS after a restart", "MiB"),
    ];
    for (index, (what, unit)) in names.into_iter().enumerate() {
        let name = format!("compose: {} chains of 5, {what}", plan.instances);
        match all.as_slice() {
            [ours, peer] => report.beside(name, unit, Better::Lower, ours[index], PEER, peer[index]),
            [ours] => report.alone(name, unit, ours[index]),
            _ => {}
        }
    }
    Ok(())
}

/// Memory with many kinds and many instances.
async fn memory(report: &mut Report, program: &Path, folder: &Path, plan: &Plan) -> anyhow::Result<()> {
    let own = tempfile::tempdir_in(folder)?;
    let mut contender = Contender::start(program, own.path(), None).await?;
    let (definitions, each) = (plan.definitions, plan.instances_each);
    let began = Instant::now();
    for number in 0..definitions {
        let kind = format!("Shape{number}");
        contender.define(Shape::Chain(2), &format!("shape{number}"), &kind).await?;
        let path = format!("/apis/kro.run/v1alpha1/namespaces/default/shape{number}s");
        // Names of children must differ between kinds.
        let names = stream::iter(0..each).map(|index| {
            let (client, path, kind) = (contender.client.clone(), path.clone(), kind.clone());
            async move {
                let instance = json!({"apiVersion": "kro.run/v1alpha1", "kind": kind,
                    "metadata": {"name": format!("k{number}-i{index}")}, "spec": {}});
                let (code, body) = client.post(&path, &instance).await?;
                ensure!(code == 201, "{code}: {}", String::from_utf8_lossy(&body));
                Ok(())
            }
        });
        names.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    }
    let last = format!("/apis/kro.run/v1alpha1/namespaces/default/shape{}s", definitions - 1);
    contender
        .until("all instances are ACTIVE", || async {
            let found: Value = serde_json::from_slice(&contender.client.get(&last).await?.1)?;
            let items = found["items"].as_array().map_or(&[][..], Vec::as_slice);
            Ok(items.iter().all(|item| item["status"]["state"] == "ACTIVE"))
        })
        .await?;
    let what = format!("compose: {definitions} definitions x {each} instances");
    report.alone(format!("{what}, time"), "s", began.elapsed().as_secs_f64());
    report.alone(format!("{what}, RSS"), "MiB", contender.resident_mib());
    report.alone(format!("{what}, peak RSS"), "MiB", contender.peak_mib());
    contender.restart()?;
    sleep(IDLE).await;
    let before = contender.requests().await?;
    sleep(IDLE).await;
    let after = contender.requests().await?;
    report.alone(format!("{what}, RSS after a restart"), "MiB", contender.resident_mib());
    report.alone(format!("{what}, peak RSS after a restart"), "MiB", contender.peak_mib());
    report.alone(format!("{what}, writes after a restart"), "", after.1 - before.1);
    Ok(())
}
