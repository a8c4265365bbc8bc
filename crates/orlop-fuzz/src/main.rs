//! Sends mutated requests to a running API server and reports answers that no client should see.
//!
//! Every request begins as a valid one ([`corpus`]) and is then damaged ([`mutation`]): in its JSON, in its bytes,
//! in its query or in its media type. An answer is a [`fault`](oracle) if it is a 5xx, if an error is not a Status
//! of the same code, or if the connection ends without an answer. A seed repeats a run, request by request.

mod corpus;
mod http;
mod mutation;
mod oracle;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Parser;
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use crate::{http::Connection, oracle::Fault};

/// Faults of one kind that are printed in full.
const SHOWN: usize = 3;

#[derive(Debug, Parser)]
#[command(about = "Sends mutated requests to a running API server")]
struct Arguments {
    /// Plain HTTP address of the server (`orlop serve --insecure-listen`).
    #[arg(long, value_name = "ADDR:PORT")]
    server: SocketAddr,
    /// File with a bearer token of an administrator.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Seconds to go on for.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the run; a random one by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Connections that send at a time.
    #[arg(long, default_value_t = 16)]
    connections: u64,
}

/// Faults by kind, with examples.
type Faults = BTreeMap<String, (usize, Vec<Fault>)>;

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    anyhow::ensure!(arguments.server.ip().is_loopback(), "only servers of this machine are fuzzed");
    let token = std::fs::read_to_string(&arguments.token_file)
        .with_context(|| format!("reading {}", arguments.token_file.display()))?;
    let seed = arguments.seed.unwrap_or_else(|| rand::rng().random());
    println!("seed {seed}");
    corpus::create_definition(arguments.server, token.trim())?;
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let workers: Vec<_> = (0..arguments.connections)
        .map(|worker| {
            let token = token.trim().to_owned();
            thread::spawn(move || fuzz(arguments.server, &token, seed.wrapping_add(worker), end))
        })
        .collect();
    let (mut sent, mut codes, mut faults) = (0, BTreeMap::new(), Faults::new());
    for worker in workers {
        let report = worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
        sent += report.sent;
        for (code, count) in report.codes {
            *codes.entry(code).or_insert(0) += count;
        }
        for (kind, (count, examples)) in report.faults {
            let all = faults.entry(kind).or_default();
            all.0 += count;
            all.1.extend(examples);
        }
    }
    println!("{sent} requests; answers by code: {codes:?}");
    for (kind, (count, examples)) in &faults {
        println!("\n{count}x {kind}");
        examples.iter().take(SHOWN).for_each(|fault| println!("{fault}"));
    }
    println!(
        "{} passed, {} failed",
        sent - faults.values().map(|(count, _)| count).sum::<usize>(),
        faults.len()
    );
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Debug, Default)]
struct Report {
    sent: usize,
    codes: BTreeMap<u16, usize>,
    faults: Faults,
}

/// Sends mutated requests over one connection until the time is over.
fn fuzz(server: SocketAddr, token: &str, seed: u64, end: Instant) -> anyhow::Result<Report> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut report = Report::default();
    let mut connection = Connection::open(server)?;
    while Instant::now() < end {
        let mut request = corpus::pick(&mut random);
        for _ in 0..random.random_range(0..4) {
            mutation::mutate(&mut request, &mut random);
        }
        report.sent += 1;
        let answer = connection.send(&request, token);
        if let Ok(answer) = &answer {
            *report.codes.entry(answer.code).or_insert(0) += 1;
        }
        if answer.is_err() || answer.as_ref().is_ok_and(|answer| answer.closed) {
            connection = Connection::open(server).context("the server does not accept connections")?;
        }
        if let Some(fault) = oracle::judge(&request, &answer) {
            let (count, examples) = report.faults.entry(fault.kind.clone()).or_default();
            *count += 1;
            if examples.len() < SHOWN {
                examples.push(fault);
            }
        }
    }
    Ok(report)
}
