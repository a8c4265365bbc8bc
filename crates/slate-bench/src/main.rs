//! Slate beside SQLite, on the work of the public project's own benchmark: 100,000 documents of 8 fields.
//!
//! `cargo xtask bench slate [--json FILE]`. A row's peer is SQLite (JSON1, expression indexes; in memory
//! for the memory store, WAL with `synchronous=FULL` for rocks) or the public project's published figure.

mod embedded;
mod remote;
mod report;
mod sqlite;

use std::{path::PathBuf, time::Instant};

use bson::{Document, doc};
use clap::Parser as _;

use crate::report::Report;

/// Documents of the benchmark.
pub(crate) const DOCUMENTS: i32 = 100_000;
/// Point look-ups per round.
pub(crate) const LOOKUPS: i32 = 1000;

#[derive(Debug, clap::Parser)]
struct Arguments {
    /// Ignored, so that all benchmarks are called alike
    subject: Option<String>,
    /// Write the rows to a file, too
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A document of 8 fields. Half of them are active; there are ten regions and a hundred scores.
pub(crate) fn document(n: i32) -> Document {
    doc! {
        "_id": n,
        "name": format!("Account {n}"),
        "status": if n % 2 == 0 { "active" } else { "idle" },
        "score": (n.wrapping_mul(7919)).rem_euclid(100),
        "region": format!("r{}", n % 10),
        "balance": f64::from(n % 1000) / 4.0,
        "email": format!("user{n}@example.org"),
        "created": bson::DateTime::from_millis(1_700_000_000_000 + i64::from(n) * 1000),
    }
}

pub(crate) fn conjunction() -> Document {
    doc! { "status": "active", "score": 42, "region": "r8" }
}

/// Returns how many documents the conjunction matches.
pub(crate) fn conjunction_matches() -> usize {
    let wanted = conjunction();
    (0..DOCUMENTS)
        .map(document)
        .filter(|document| wanted.iter().all(|(name, value)| document.get(name) == Some(value)))
        .count()
}

/// Ids of the look-ups, spread over the collection.
pub(crate) fn lookup_ids() -> impl Iterator<Item = i32> {
    (0..LOOKUPS).map(|n| n.wrapping_mul(7919).rem_euclid(DOCUMENTS))
}

/// Runs work a few times and returns the fastest in milliseconds.
pub(crate) fn fastest(rounds: usize, mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let began = Instant::now();
        work()?;
        best = best.min(began.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(best)
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut report = Report::default();
    let memory_peer = sqlite::measure(None)?;
    embedded::memory(&mut report, &memory_peer)?;
    #[cfg(feature = "rocks")]
    {
        let folder = tempfile::tempdir()?;
        let disk_peer = sqlite::measure(Some(&folder.path().join("peer.db")))?;
        embedded::rocks(&mut report, &disk_peer)?;
    }
    remote::measure(&mut report)?;
    if let Some(path) = arguments.json {
        report.write(&path)?;
    }
    Ok(())
}
