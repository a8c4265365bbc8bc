//! Hostile use of the API server: the requests that cost it most, by size of their body, and clients that do not
//! read. Beside each, a polite client sends small reads; its 99th percentile is compared with its own before.

mod requests;
mod unread;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::task::JoinHandle;

pub(crate) use self::unread::hold;
use crate::{
    api::{CONFIG_MAPS, Server},
    client::Client,
    load::Measured,
    report::{Better, Report},
};

/// The object that the polite client reads.
const POLITE: &str = "/api/v1/namespaces/default/configmaps/polite";
/// Time between two reads of the polite client.
const PACE: Duration = Duration::from_millis(2);
/// Time for memory to settle.
const SETTLE: Duration = Duration::from_secs(3);

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Requests that cost much processor time.
    Requests,
    /// Lists and watches that nobody reads.
    Unread,
}

/// A server under attack.
struct Target {
    server: Server,
    /// The polite client, on a connection of its own.
    polite: Client,
    /// Duration of each attack.
    time: Duration,
}

/// Runs every attack against a server that is started for it.
pub(crate) async fn run(
    report: &mut Report,
    program: &Path,
    folder: &Path,
    time: Duration,
    parts: &[Part],
) -> anyhow::Result<()> {
    let server = Server::start(program, folder)?;
    let polite = Client::connect(&server.kubeconfig, 1).await?;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "polite"}});
    let (code, _) = polite.post(CONFIG_MAPS, &object).await?;
    anyhow::ensure!(code == 201, "the polite client's object: {code}");
    let target = Target { server, polite, time };
    for part in parts {
        match part {
            Part::Requests => requests::run(report, &target).await?,
            Part::Unread => unread::run(report, &target).await?,
        }
    }
    Ok(())
}

impl Target {
    /// Measures the polite client for a while with nothing beside it.
    async fn alone(&self) -> Measured {
        let reads = Reads::start(self.polite.clone());
        tokio::time::sleep(self.time).await;
        reads.stop().await
    }

    /// Reports the polite client's 99th percentile during an attack, beside that of the same client alone.
    fn report_polite(&self, report: &mut Report, attack: &str, alone: &Measured, beside: &Measured) {
        let name = format!("abuse: {attack}: a polite client's p99");
        let (value, peer) = (beside.quantile_ms(0.99), alone.quantile_ms(0.99));
        report.beside(name, "ms", Better::Lower, value, "the same client alone", peer);
        if beside.errors > 0 {
            report.alone(format!("abuse: {attack}: a polite client's errors"), "", beside.errors as f64);
        }
    }
}

/// Small reads at a steady pace, until stopped.
struct Reads {
    is_over: Arc<AtomicBool>,
    task: JoinHandle<Measured>,
}

impl Reads {
    fn start(client: Client) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let task = tokio::spawn(async move {
            let started = Instant::now();
            let (mut latencies, mut errors) = (Vec::new(), 0);
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                match client.get(POLITE).await {
                    Ok((200, _)) => latencies.push(begun.elapsed()),
                    _ => errors += 1,
                }
                tokio::time::sleep(PACE).await;
            }
            Measured::new(latencies, errors, started.elapsed())
        });
        Self { is_over, task }
    }

    async fn stop(self) -> Measured {
        self.is_over.store(true, Ordering::Relaxed);
        self.task.await.unwrap_or_else(|_| Measured::new(Vec::new(), 1, Duration::ZERO))
    }
}
