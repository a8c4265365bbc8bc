//! Load: many clients, each doing one thing after another for a while.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Outcome of a load.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Operations that succeeded, a second.
    pub(crate) per_second: f64,
    /// Latencies, sorted.
    latencies: Vec<Duration>,
    /// Operations that failed.
    pub(crate) errors: usize,
}

impl Measured {
    /// Gathers clients' latencies over a time.
    pub(crate) fn new(mut latencies: Vec<Duration>, errors: usize, took: Duration) -> Self {
        latencies.sort_unstable();
        Self { per_second: latencies.len() as f64 / took.as_secs_f64(), latencies, errors }
    }

    fn nothing() -> Self {
        Self { per_second: 0.0, latencies: Vec::new(), errors: 0 }
    }

    /// Merges the outcome of a load with that of its next turn.
    fn add(&mut self, next: Self) {
        let seconds = |measured: &Self| match measured.count() {
            0 => 0.0,
            count => count as f64 / measured.per_second,
        };
        let took = Duration::from_secs_f64(seconds(self) + seconds(&next));
        let mut latencies = std::mem::take(&mut self.latencies);
        latencies.extend(next.latencies);
        *self = Self::new(latencies, self.errors + next.errors, took);
    }

    /// Number of operations that succeeded.
    pub(crate) fn count(&self) -> usize {
        self.latencies.len()
    }

    /// A quantile of the latencies, in milliseconds.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> f64 {
        let at =
            ((self.latencies.len() as f64 * quantile) as usize).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(at).map_or(f64::NAN, Duration::as_secs_f64) * 1000.0
    }
}

/// Runs two operations, each by `clients` tasks, in turns of a part of `time`, so that a slow moment of the machine
/// meets both. Each counts its n up over all of its turns.
pub(crate) async fn in_turns<A, B, F, G>(
    clients: usize,
    time: Duration,
    ours: A,
    peer: B,
) -> (Measured, Measured)
where
    A: Fn(usize, usize) -> F + Clone + Send + 'static,
    B: Fn(usize, usize) -> G + Clone + Send + 'static,
    F: Future<Output = bool> + Send,
    G: Future<Output = bool> + Send,
{
    const TURNS: u32 = 16;
    let (mut first, mut second) = (Measured::nothing(), Measured::nothing());
    for _ in 0..TURNS {
        let (ours, done) = (ours.clone(), first.count());
        first.add(run(clients, time / TURNS, move |client, n| ours(client, done + n)).await);
        let (peer, done) = (peer.clone(), second.count());
        second.add(run(clients, time / TURNS, move |client, n| peer(client, done + n)).await);
    }
    (first, second)
}

/// Runs `clients` tasks for `time`; each calls `operation(client, n)` with n counting up.
pub(crate) async fn run<O, F>(clients: usize, time: Duration, operation: O) -> Measured
where
    O: Fn(usize, usize) -> F + Clone + Send + 'static,
    F: Future<Output = bool> + Send,
{
    let started = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let operation = operation.clone();
            tokio::spawn(async move {
                let (mut latencies, mut errors) = (Vec::new(), 0);
                for n in 0.. {
                    let begun = Instant::now();
                    if begun.duration_since(started) >= time {
                        break;
                    }
                    if operation(client, n).await {
                        latencies.push(begun.elapsed());
                    } else {
                        errors += 1;
                    }
                }
                (latencies, errors)
            })
        })
        .collect();
    let (mut latencies, mut errors) = (Vec::new(), 0);
    for task in tasks {
        if let Ok((more, failed)) = task.await {
            latencies.extend(more);
            errors += failed;
        }
    }
    Measured::new(latencies, errors, started.elapsed())
}

/// The same with a thread for each client, for peers whose calls block.
pub(crate) fn run_threads<O>(clients: usize, time: Duration, operation: O) -> Measured
where
    O: Fn(usize, usize) -> bool + Sync,
{
    let started = Instant::now();
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|client| {
                let operation = &operation;
                scope.spawn(move || {
                    let (mut latencies, mut errors) = (Vec::new(), 0);
                    for n in 0.. {
                        let begun = Instant::now();
                        if begun.duration_since(started) >= time {
                            break;
                        }
                        if operation(client, n) {
                            latencies.push(begun.elapsed());
                        } else {
                            errors += 1;
                        }
                    }
                    (latencies, errors)
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>()
    });
    let errors = results.iter().map(|(_, errors)| errors).sum();
    Measured::new(
        results.into_iter().flat_map(|(latencies, _)| latencies).collect(),
        errors,
        started.elapsed(),
    )
}

/// Resident memory of this process in MiB, now.
pub(crate) fn resident_mib() -> f64 {
    status_mib("self", "VmRSS")
}

/// A size from a process's status, in MiB.
pub(crate) fn status_mib(process: &str, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}

/// Processor time that a process has used, in seconds.
pub(crate) fn processor_seconds(process: u32) -> f64 {
    /// Linux counts in hundredths of a second, whatever the kernel's own tick.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name before the last parenthesis may hold anything; user and system time come 12 fields after it.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>()
        / TICKS
}

/// Returns a command that runs this program in SCHED_IDLE: on a machine of its own the client that it is would take no
/// processor time from the server, nor from those that are measured. At niceness 19 it would still run its time slice to
/// the end before a thread that wakes up.
pub(crate) fn least_priority() -> std::io::Result<tokio::process::Command> {
    let mut command = tokio::process::Command::new("chrt");
    command.args(["--idle", "0"]).arg(std::env::current_exe()?).kill_on_drop(true);
    Ok(command)
}
