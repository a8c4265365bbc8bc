//! The agent: discovers the node's GPUs, registers them, and reconciles their conditions.
//!
//! ```text
//! Source (NVML, fake) ──readings──▶ health ──desired state──▶ sync ──writes──▶ server
//!                                                              ▲ cache of the actual state
//! ```
//!
//! The agent reconciles whenever desired or actual state changes, and writes only differences. A server that restarted
//! without its data is such a difference, so re-registration needs no code of its own. Condition types, labels and
//! annotations that are not the agent's, and objects without its label, belong to others and stay unchanged.

mod fake;
mod health;
mod nvml;
mod source;
mod sync;
mod xid;

use futures_util::future::BoxFuture;
use std::{thread, time::Duration};

use orlop_device_client::{Cache, Connection, Gpus};
use tokio::sync::watch;

pub use self::{
    fake::Fake,
    health::{Reading, Remap},
    nvml::Nvml,
    source::{MakeSource, NoDriver, Source},
    sync::MANAGED_BY,
};

/// Delay after a failed write.
const BACK_OFF: Duration = Duration::from_secs(1);

/// The source's latest readings.
type Readings = Option<Result<Vec<Reading>, String>>;

/// Runs an agent until it is dropped. Returns only if the source cannot be created.
pub fn run(
    connection: Connection,
    make: MakeSource,
    period: Duration,
) -> BoxFuture<'static, Result<(), NoDriver>> {
    Box::pin(async move {
        let (sender, readings) = watch::channel(None);
        let (ended, end) = tokio::sync::oneshot::channel();
        let thread = thread::Builder::new().name("orlop-gpu-source".into()).spawn(move || {
            let result = make(&mut |source| poll_source(source, period, &sender));
            let _ = ended.send(result);
        });
        if let Err(error) = thread {
            return Err(NoDriver::new(format!("cannot start a thread: {error}")));
        }
        tokio::select! {
            () = reconcile(connection, readings) => Ok(()),
            result = end => result.unwrap_or_else(|_| Err(NoDriver::new("the source's thread ended".into()))),
        }
    })
}

/// Polls the source until the receiver is dropped.
fn poll_source(source: &mut dyn Source, period: Duration, readings: &watch::Sender<Readings>) {
    tracing::info!(source = source.describe(), "watching GPUs");
    loop {
        let read = source.read();
        let same = readings.borrow().as_ref() == Some(&read);
        if !same {
            if let Err(error) = &read {
                tracing::warn!(error, "cannot read GPUs");
            }
            readings.send_replace(Some(read));
        }
        if readings.is_closed() {
            return;
        }
        source.wait(period);
    }
}

/// Reconciles, until dropped.
async fn reconcile(connection: Connection, mut readings: watch::Receiver<Readings>) {
    let gpus = Gpus::new(connection).selector(format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    let client = gpus.client();
    let cache = Cache::start(gpus);
    let mut versions = cache.versions();
    let boot = boot_time();
    cache.synced().await;
    loop {
        versions.mark_unchanged();
        let latest = readings.borrow_and_update().clone();
        let mut failed = false;
        if let Some(latest) = latest {
            for change in sync::plan(&latest, &cache.list(), boot) {
                if let Err(status) = change.write(client.clone()).await {
                    tracing::warn!(code = ?status.code(), error = status.message(), "reconcile failed");
                    failed = true;
                }
            }
        }
        let again = tokio::time::sleep(if failed { BACK_OFF } else { Duration::MAX });
        tokio::select! {
            changed = readings.changed() => if changed.is_err() { return },
            changed = versions.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}

/// Returns the boot time in Unix seconds. Errors from before it may have been fixed by the reboot.
fn boot_time() -> i64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    line.and_then(|seconds| seconds.trim().parse().ok()).unwrap_or(0)
}
