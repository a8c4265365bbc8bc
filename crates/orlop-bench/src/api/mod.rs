//! The API server, over TLS and HTTP/2 as clients use it; with `--peer`, the same against another server,
//! step by step in turn.

mod custom;
pub(crate) mod definitions;
mod forms;
mod lists;
mod many;
mod watches;
mod writes;

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use serde_json::{Value, json};

use crate::{
    bare::Bare,
    client::{Client, Target},
    load,
    report::{Better, Report},
};

const VALUE_BYTES: usize = 1024;
const CLIENTS: usize = 64;
/// Connections that they share.
const CONNECTIONS: usize = 4;
/// Collection that the loads write to.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Duration of each load.
    pub(crate) time: Duration,
    /// Objects that are listed.
    pub(crate) objects: usize,
    /// Objects that a server of its own is filled with, to see that its memory does not grow with them.
    pub(crate) many: usize,
}

/// Steps of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Step {
    /// From nothing to ready, and memory then.
    Start,
    /// Lists of everything, by label and by page, and memory afterwards.
    Lists,
    /// Lists in every form that clients ask for, and memory afterwards.
    Forms,
    /// Creates.
    Create,
    /// Gets.
    Get,
    /// Updates.
    Update,
    /// Merge patches.
    Patch,
    /// Events to 1, 100 and 1,000 watchers.
    Watches,
    /// Each way of changing small and large objects (ours only).
    Writes,
    /// Custom resources beside ConfigMaps (ours only).
    Custom,
    /// Memory with very many objects (ours only).
    Many,
}

/// Another server.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) kubeconfig: PathBuf,
    /// Its processes, where their processor time and memory are to be measured too.
    pub(crate) processes: Vec<u32>,
}

/// A server that was started for the benchmark.
pub(crate) struct Server {
    process: Child,
    pub(crate) kubeconfig: PathBuf,
    ready: Duration,
}

impl Server {
    pub(crate) fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        Self::start_with(program, folder, &[])
    }

    /// Starts a server with more options.
    pub(crate) fn start_with(program: &Path, folder: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let kubeconfig = folder.join("kubeconfig");
        let started = Instant::now();
        let mut process = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder)
            .args(options)
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

    /// Ends it in order, within a limit.
    pub(crate) fn stop(&mut self, limit: Duration) {
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let started = Instant::now();
        while started.elapsed() < limit && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One of the servers that are measured.
pub(crate) struct Contender {
    pub(crate) client: Client,
    pub(crate) target: Target,
    pub(crate) kubeconfig: PathBuf,
    processes: Vec<u32>,
    ready: Option<Duration>,
    /// Prefix of names and labels of this run.
    pub(crate) run: String,
}

impl Contender {
    async fn new(kubeconfig: &Path, processes: Vec<u32>, ready: Option<Duration>) -> anyhow::Result<Self> {
        let client = Client::connect(kubeconfig, CONNECTIONS).await?;
        let run = format!("bench-{:x}", std::process::id());
        for worker in 0..CLIENTS {
            let name = format!("{run}-{worker}");
            let (code, body) = client.post(CONFIG_MAPS, &object(&name, &run, 0)).await?;
            anyhow::ensure!(code == 201, "{code}: {}", String::from_utf8_lossy(&body));
        }
        let target = Target::read(kubeconfig)?;
        Ok(Self { client, target, kubeconfig: kubeconfig.to_owned(), processes, ready, run })
    }

    /// A server that has no objects, and the same answer to everything.
    async fn bare(bare: &Bare) -> anyhow::Result<Self> {
        let client = Client::connect(&bare.kubeconfig, CONNECTIONS).await?;
        let (target, kubeconfig) = (Target::read(&bare.kubeconfig)?, bare.kubeconfig.clone());
        Ok(Self {
            client,
            target,
            kubeconfig,
            processes: vec![bare.process()],
            ready: None,
            run: String::new(),
        })
    }

    pub(crate) async fn ours(server: &Server) -> anyhow::Result<Self> {
        Self::new(&server.kubeconfig, vec![server.process.id()], Some(server.ready)).await
    }

    /// Processor time used so far, in seconds, where the processes are known.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        let processes = self.processes.iter();
        (!self.processes.is_empty()).then(|| processes.map(|process| load::processor_seconds(*process)).sum())
    }

    /// Memory now, where the processes are known.
    pub(crate) fn resident_mib(&self) -> Option<f64> {
        let processes = self.processes.iter();
        let resident = processes.map(|process| load::status_mib(&process.to_string(), "VmRSS"));
        (!self.processes.is_empty()).then(|| resident.sum())
    }

    async fn measure(&self, step: Step, size: Size) -> anyhow::Result<Vec<Figure>> {
        Ok(match step {
            Step::Start => {
                let ready = self.ready.map(|ready| ready.as_secs_f64() * 1e3);
                let ready = ready.map(|ms| Figure::lower("from nothing to ready", "ms", ms));
                let idle = self.resident_mib().map(|mib| Figure::lower("RSS idle", "MiB", mib));
                ready.into_iter().chain(idle).collect()
            }
            Step::Lists => lists::measure(self, size).await?,
            Step::Forms => forms::measure(self, size).await?,
            Step::Create => self.load("create", size, Operation::Create).await,
            Step::Get => self.load("get", size, Operation::Get).await,
            Step::Update => self.load("update", size, Operation::Update).await,
            Step::Patch => self.load("patch", size, Operation::Patch).await,
            Step::Watches => watches::measure(self, size).await?,
            Step::Writes | Step::Custom | Step::Many => Vec::new(),
        })
    }

    async fn load(&self, what: &str, size: Size, operation: Operation) -> Vec<Figure> {
        let before = self.cpu_seconds();
        let (client, run) = (self.client.clone(), self.run.clone());
        let done = load::run(CLIENTS, size.time, move |worker, n| {
            let (client, run) = (client.clone(), run.clone());
            async move { operation.once(&client, &run, worker, n).await }
        })
        .await;
        let mut figures = vec![
            Figure::higher(format!("{what}, {CLIENTS} clients"), "/s", done.per_second),
            Figure::lower(format!("{what}, 99th percentile"), "ms", done.quantile_ms(0.99)),
        ];
        if let (Some(before), Some(after)) = (before, self.cpu_seconds()) {
            let each = (after - before) * 1e6 / done.count().max(1) as f64;
            figures.push(Figure::lower(format!("{what}, processor time each"), "us", each));
        }
        if done.errors > 0 {
            figures.push(Figure::lower(format!("{what}, failures"), "", done.errors as f64));
        }
        figures
    }
}

/// One measured figure of one server.
pub(crate) struct Figure {
    name: String,
    unit: &'static str,
    better: Better,
    value: f64,
}

impl Figure {
    pub(crate) fn higher(name: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { name: format!("api: {}", name.into()), unit, better: Better::Higher, value }
    }

    pub(crate) fn lower(name: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { name: format!("api: {}", name.into()), unit, better: Better::Lower, value }
    }
}

/// Measures `orlop`, and beside it a peer if there is one.
pub(crate) async fn run(
    report: &mut Report,
    orlop: &Path,
    peer: Option<Peer>,
    folder: &Path,
    size: Size,
    steps: &[Step],
) -> anyhow::Result<()> {
    let server = Server::start(orlop, folder)?;
    let ours = Contender::ours(&server).await?;
    let theirs = match peer {
        Some(peer) => Some(Contender::new(&peer.kubeconfig, peer.processes, None).await?),
        None => None,
    };
    for step in steps {
        let figures = ours.measure(*step, size).await?;
        let beside = match &theirs {
            // What was measured here is worth telling even if the other one fails.
            Some(theirs) => theirs
                .measure(*step, size)
                .await
                .inspect_err(|error| eprintln!("the peer could not be measured: {error:#}"))
                .unwrap_or_default(),
            None => Vec::new(),
        };
        if *step == Step::Get {
            let bare = Bare::start(folder)?;
            let beside = Contender::bare(&bare).await?.measure(*step, size).await?;
            for (ours, bare) in figures.iter().zip(beside) {
                let name = format!("{}, beside TLS and HTTP/2 alone", ours.name);
                report.beside(name, ours.unit, ours.better, ours.value, "a bare server", bare.value);
            }
        }
        for Figure { name, unit, better, value } in figures {
            match beside.iter().find(|figure| figure.name == name) {
                Some(peer) => report.beside(name, unit, better, value, "the peer", peer.value),
                None => report.alone(name, unit, value),
            }
        }
        match step {
            Step::Writes => writes::run(report, &server, size).await?,
            Step::Custom => custom::run(report, &server, size).await?,
            Step::Many => many::run(report, orlop, &folder.join("many"), size.many).await?,
            _ => {}
        }
    }
    Ok(())
}

/// Operation that a client repeats.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Create,
    Get,
    Update,
    Patch,
}

impl Operation {
    pub(crate) async fn once(self, client: &Client, run: &str, worker: usize, n: usize) -> bool {
        let name = format!("{run}-{worker}");
        let own = format!("{CONFIG_MAPS}/{name}");
        let answered = match self {
            Self::Create => client.post(CONFIG_MAPS, &object(&format!("{name}-{n}"), run, n)).await,
            Self::Get => client.get(&own).await,
            Self::Update => client.put(&own, &object(&name, run, n + 1)).await,
            Self::Patch => client.patch(&own, &json!({"data": {"n": n.to_string()}})).await,
        };
        answered.is_ok_and(|(code, _)| code < 300)
    }
}

/// A ConfigMap of about a KiB.
pub(crate) fn object(name: &str, label: &str, n: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"bench": label}},
        "data": {"n": n.to_string(), "value": "x".repeat(VALUE_BYTES)},
    })
}
