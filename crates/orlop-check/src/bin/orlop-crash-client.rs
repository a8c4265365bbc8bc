//! A client process to be killed: it writes to a store as fast as it can, and logs every request before it is sent and
//! every outcome to its standard output.
//!
//! `orlop-crash-client ENDPOINT SEED ROUND CLIENTS`. A line is `I client number newest key` when a request is
//! made up (see [`orlop_check::RequestGenerator`]; the last two are its hint) and `R client number outcome` when it is
//! answered. Since lines are written whole and in order, their order is the order of what they say.

use std::{io::Write, process::ExitCode, sync::Arc};

use orlop_check::{
    Client, ClientState, Hint, Outcome, Random, Request, RequestGenerator, encode_outcome, send,
};
use orlop_store::{Config, Endpoint, Error, Store};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("orlop-crash-client: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, seed, round, clients] = &arguments[..] else {
        return Err(Error::Invalid("usage: orlop-crash-client ENDPOINT SEED ROUND CLIENTS".into()));
    };
    let number = |text: &String| text.parse::<u64>().map_err(|error| Error::Invalid(error.to_string()));
    let (seed, round, clients) = (number(seed)?, number(round)?, number(clients)?);
    let config = Config { retention: None, ..Config::new(Endpoint::parse(endpoint)?) };
    let store: Arc<dyn Client> = Arc::new(Store::open(config).await?);
    let tasks = (0..clients).map(|client| {
        let store = store.clone();
        tokio::spawn(async move { crash_client(&*store, seed, round * 100 + client, client == 0).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        let _ = task.await;
    }
    Ok(())
}

/// Asks one request after another until the process is killed. The first client compacts now and then.
async fn crash_client(store: &dyn Client, seed: u64, client: u64, compacts: bool) {
    let mut state = ClientState::default();
    let mut random = Random::new(&[seed, client, 4_000]);
    for number in 0.. {
        let generator = RequestGenerator::new(seed, client, number);
        let hint = state.hint(generator.key());
        let request = if compacts && random.percent(3) {
            let revision = (hint.newest - random.between(0, 50)).max(1);
            log(&format!("C {client} {number} {revision}"));
            Request::Compact(revision)
        } else {
            let Hint { newest, key } = hint;
            log(&format!("I {client} {number} {newest} {key}"));
            generator.request(hint)
        };
        let outcome = send(store, &request).await;
        state.observe(&request, &outcome);
        log(&format!("R {client} {number} {}", encode_outcome(&outcome)));
        if outcome == Outcome::Unknown {
            // The database is not to be reached: do not hurry.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

fn log(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        // The test has ended.
        std::process::exit(1);
    }
}
