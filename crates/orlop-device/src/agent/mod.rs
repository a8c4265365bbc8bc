//! The agent: finds the node's GPUs, registers them, and keeps their conditions in step.
//!
//! ```text
//! Source (NVML, fake) ──readings──▶ health ──what should be──▶ sync ──writes──▶ server
//!                                                               ▲ cache of what is
//! ```
//!
//! What should be and what is are compared whenever either changes, and only differences are written. That
//! a server restarted and forgot everything is such a difference, so re-registration needs no code of its
//! own. Conditions of other types than the agent's, labels and annotations under other names, and objects
//! without the agent's label belong to others and are left alone.

mod fake;
mod health;
mod nvml;
mod sync;
mod xid;

use std::{
    thread,
    time::{Duration, SystemTime},
};

use orlop_device_client::{Cache, Connection, Gpus};
use tokio::sync::watch;

pub use self::{
    fake::Fake,
    health::{Reading, Remap},
    nvml::{NoDriver, Nvml},
    sync::MANAGED_BY,
};

/// How long to wait after a write failed.
const BACK_OFF: Duration = Duration::from_secs(1);

/// Where readings come from. It is asked on a thread of its own, since drivers may block.
pub trait Source: Send {
    /// What it is, for people.
    fn describe(&self) -> String;
    /// Waits for up to `wait` for something to happen.
    fn wait(&mut self, wait: Duration);
    /// Every GPU, as it is now. An error means that nothing can be said of any.
    fn read(&mut self) -> Result<Vec<Reading>, String>;
}

/// Makes a source on the thread that it will be asked on.
pub type MakeSource = Box<dyn FnOnce(&mut dyn FnMut(&mut dyn Source)) -> Result<(), NoDriver> + Send>;

/// What the source last said.
type Readings = Option<Result<Vec<Reading>, String>>;

/// Runs an agent until it is dropped. Returns only if there is no source to ask.
pub async fn run(connection: Connection, make: MakeSource, period: Duration) -> Result<(), NoDriver> {
    let (sender, readings) = watch::channel(None);
    let (ended, end) = tokio::sync::oneshot::channel();
    let thread = thread::Builder::new().name("orlop-gpu-source".into()).spawn(move || {
        let result = make(&mut |source| ask(source, period, &sender));
        let _ = ended.send(result);
    });
    if let Err(error) = thread {
        return Err(NoDriver::new(format!("cannot start a thread: {error}")));
    }
    tokio::select! {
        () = keep(connection, readings) => Ok(()),
        result = end => result.unwrap_or_else(|_| Err(NoDriver::new("the driver's thread died".into()))),
    }
}

/// Asks the source again and again, until nobody listens.
fn ask(source: &mut dyn Source, period: Duration, readings: &watch::Sender<Readings>) {
    tracing::info!(source = source.describe(), "watching GPUs");
    loop {
        let read = source.read();
        let same = readings.borrow().as_ref() == Some(&read);
        if !same {
            if let Err(error) = &read {
                tracing::warn!(error, "GPUs cannot be read");
            }
            readings.send_replace(Some(read));
        }
        if readings.is_closed() {
            return;
        }
        source.wait(period);
    }
}

/// Compares and writes, for ever.
async fn keep(connection: Connection, mut readings: watch::Receiver<Readings>) {
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
            for change in sync::differences(&latest, &cache.list(), boot) {
                if let Err(status) = change.write(client.clone()).await {
                    tracing::warn!(code = ?status.code(), error = status.message(), "cannot write");
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

/// When this machine started, in Unix seconds: what was seen before that may have been mended by it.
fn boot_time() -> i64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    line.and_then(|seconds| seconds.trim().parse().ok()).unwrap_or(0)
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or_default()
}
