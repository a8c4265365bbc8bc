//! The server over loopback TCP.

use std::time::Instant;

use bson::{Bson, doc};
use futures_util::future::try_join_all;
use slate_client::{Client, Options, protocol::IndexDefinition};
use slate_server::{Server, config::Config};

use crate::{
    mixed,
    work::{Stopwatch, document, lookup_ids},
};

/// Look-ups sent at once. Several such batches are on their way at a time.
const BATCH: usize = 100;
/// Rounds of look-ups.
const ROUNDS: usize = 25;

/// Figures of one server.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Milliseconds of processor time of a thousand look-ups, pipelined: client and server together.
    pub(crate) pipelined: f64,
    /// Milliseconds that pass meanwhile.
    pub(crate) pipelined_elapsed: f64,
    /// Milliseconds that pass in a thousand look-ups of the server's engine, without the network.
    pub(crate) embedded_elapsed: f64,
    /// Milliseconds of a thousand look-ups, each after the answer to the one before.
    pub(crate) one_by_one: f64,
    /// Operations of the mixed load per second of processor time, clients and server together.
    pub(crate) mixed: f64,
}

pub(crate) fn measure(config: Config) -> anyhow::Result<Figures> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // In a task, as in a program: the main thread would be woken for every answer.
    let measured = runtime.spawn(async move {
        let server = Server::start(config).await?;
        let client = Client::new(Options { connections: 1, ..Options::new(server.address().to_string()) });
        let indexes = ["status", "score"].map(IndexDefinition::on).into();
        client.create_collection("c", indexes).await?;
        for chunk in 0..100 {
            let documents: Vec<_> = (chunk * 1000..(chunk + 1) * 1000).map(document).collect();
            client.insert_many("c", &documents).await?;
        }
        let ids: Vec<Bson> = lookup_ids().map(Bson::Int32).collect();
        let (mut pipelined, mut one_by_one) = (f64::INFINITY, f64::INFINITY);
        let (mut pipelined_elapsed, mut embedded_elapsed) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..ROUNDS {
            let since = Instant::now();
            let mut lookup = server.engine().prepare_lookup("slate.c")?;
            for id in &ids {
                anyhow::ensure!(lookup.get(id, |document| document.as_bytes().len())?.is_some());
            }
            embedded_elapsed = embedded_elapsed.min(elapsed(since));
            let (since, began) = (Instant::now(), Stopwatch::start());
            let found =
                try_join_all(ids.chunks(BATCH).map(|ids| client.find_by_ids("c", ids.iter().cloned())))
                    .await?;
            pipelined = pipelined.min(began.milliseconds());
            pipelined_elapsed = pipelined_elapsed.min(elapsed(since));
            anyhow::ensure!(found.iter().flatten().all(Option::is_some));
            let began = Stopwatch::start();
            for id in &ids {
                anyhow::ensure!(client.find_by_id("c", id.clone()).await?.is_some());
            }
            one_by_one = one_by_one.min(began.milliseconds());
        }
        let mixed = mixed(&server).await?;
        server.stop().await;
        Ok(Figures { pipelined, pipelined_elapsed, embedded_elapsed, one_by_one, mixed })
    });
    runtime.block_on(measured)?
}

fn elapsed(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

async fn mixed(server: &Server) -> anyhow::Result<f64> {
    let client = Client::new(Options { connections: 8, ..Options::new(server.address().to_string()) });
    let (began, processor) = (Instant::now(), Stopwatch::start());
    let clients: Vec<_> = (0..mixed::CLIENTS)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut done = 0;
                while began.elapsed() < mixed::TIME {
                    let (id, write) = mixed::operation(number, done);
                    if write {
                        let (filter, update) = (doc! { "_id": id }, doc! { "$inc": { "score": 1 } });
                        client.update_one("c", &filter, &update, false).await?;
                    } else {
                        client.find_by_id("c", Bson::Int32(id)).await?;
                    }
                    done += 1;
                }
                Ok::<_, slate_client::Error>(done)
            })
        })
        .collect();
    let mut total = 0;
    for client in clients {
        total += client.await??;
    }
    Ok(f64::from(total) / processor.seconds())
}
