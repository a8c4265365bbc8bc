//! Slate beside SQLite, on the work of the public project's own benchmark: 100,000 documents of 8 fields.
//!
//! `cargo xtask bench slate [--json FILE]`. A row's peer is SQLite in the same run (JSON1, expression
//! indexes; in memory for the memory store, WAL with `synchronous=FULL` for rocks) or the public project's
//! published figure, the best of its range, from an Apple M-series core. Both sides take turns, the fastest
//! round counts, and time is processor time.

mod embedded;
mod mixed;
mod remote;
mod report;
mod sqlite;
mod work;

use std::path::PathBuf;

use clap::Parser as _;
use slate_server::config::Config;

use crate::{
    embedded::{Embedded, Store},
    report::Report,
    sqlite::Sqlite,
    work::{Work, compare},
};

// As in slate-server. SQLite keeps the allocator that it is built with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, clap::Parser)]
struct Arguments {
    /// Ignored, so that all benchmarks are called alike
    subject: Option<String>,
    /// Write the rows to a file, too
    #[arg(long)]
    json: Option<PathBuf>,
    /// Repeat one row of the memory store for some seconds, for a profiler: 0 to 4 as the rows of reading are, 5 the
    /// mixed load within the process, 6 all rows over TCP
    #[arg(long, hide = true)]
    profile: Option<usize>,
    /// Print the memory that the documents take in this process, and nothing else
    #[arg(long, hide = true)]
    resident: bool,
}

/// Published figures of the public project, in milliseconds: the best of each range.
struct Reference {
    insert: f64,
    /// In the order of [`Work::ALL`].
    reads: [f64; 5],
}

const REFERENCE_MEMORY: Reference = Reference { insert: 285.0, reads: [14.0, 19.0, 21.0, 0.17, 1.9] };
#[cfg(feature = "rocks")]
const REFERENCE_ROCKS: Reference = Reference { insert: 760.0, reads: [113.0, 85.0, 46.0, 0.25, 2.5] };
/// Published figure for 1,000 look-ups over TCP, one round trip each.
const REFERENCE_TCP_LOOKUPS: f64 = 40.0;

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.resident {
        return embedded::print_resident();
    }
    match arguments.profile {
        Some(6) => {
            println!("{:?}", remote::measure(Config::for_test())?);
            return Ok(());
        }
        Some(number) => return embedded::repeat(Work::ALL.get(number).copied()),
        None => {}
    }
    let mut report = Report::default();
    let config = Config::for_test();
    run(&mut report, "memory", Store::Memory, &mut Sqlite::new(None)?, &REFERENCE_MEMORY, config)?;
    report.alone("memory: resident bytes per byte of BSON", "x", embedded::resident_per_byte()?);
    #[cfg(feature = "rocks")]
    {
        let folder = tempfile::tempdir()?;
        let config = Config {
            store: slate_server::config::StoreKind::Rocks,
            data_dir: folder.path().join("data"),
            ..Config::for_test()
        };
        let mut peer = Sqlite::new(Some(folder.path().join("peer.db")))?;
        run(&mut report, "rocks", Store::Rocks, &mut peer, &REFERENCE_ROCKS, config)?;
        embedded(&mut report, "rocks, not resident", Store::RocksOnDisk, &mut peer, &REFERENCE_ROCKS)?;
    }
    if let Some(path) = arguments.json {
        report.write(&path)?;
    }
    Ok(())
}

/// Measures one store, embedded and over TCP.
fn run(
    report: &mut Report,
    store: &str,
    kind: Store,
    peer: &mut Sqlite,
    reference: &Reference,
    config: Config,
) -> anyhow::Result<()> {
    embedded(report, store, kind, peer, reference)?;
    let remote = remote::measure(config)?;
    let name = format!("{store}: TCP, 1,000 point look-ups, pipelined");
    report.lower(&name, "ms", remote.pipelined, &[("the public project", REFERENCE_TCP_LOOKUPS)]);
    let name = format!("{store}: the same, elapsed time");
    report.lower(&name, "ms", remote.pipelined_elapsed, &[("embedded", remote.embedded_elapsed)]);
    let name = format!("{store}: TCP, 1,000 point look-ups, one by one");
    report.lower(&name, "ms", remote.one_by_one, &[("the public project", REFERENCE_TCP_LOOKUPS)]);
    let name = format!("{store}: TCP, mixed, 64 clients, 80% reads");
    report.higher(&name, "ops/core-s", remote.mixed, ("SQLite, in process", peer.mixed()?));
    Ok(())
}

/// Measures one store within this process.
fn embedded(
    report: &mut Report,
    store: &str,
    kind: Store,
    peer: &mut Sqlite,
    reference: &Reference,
) -> anyhow::Result<()> {
    let mut subject = Embedded::new(kind)?;
    let [ours, theirs] = compare(&mut subject, peer)?;
    let rows = [("bulk insert of 100,000", ours.insert, theirs.insert, reference.insert)];
    let reads = Work::ALL.into_iter().enumerate().map(|(position, work)| {
        (work.name(), ours.reads[position], theirs.reads[position], reference.reads[position])
    });
    for (name, ours, sqlite, reference) in rows.into_iter().chain(reads) {
        let peers = [("SQLite", sqlite), ("the public project", reference)];
        report.lower(&format!("{store}: {name}"), "ms", ours, &peers);
    }
    let name = format!("{store}: mixed, 64 threads, 80% reads");
    report.higher(&name, "ops/core-s", subject.mixed()?, ("SQLite", peer.mixed()?));
    #[cfg(feature = "rocks")]
    if kind != Store::Memory {
        report.alone(&format!("{store}: opening of the 100,000"), "ms", subject.reopen()?);
    }
    Ok(())
}
