//! The server over loopback TCP.

use std::time::{Duration, Instant};

use bson::{Bson, doc};
use slate_client::{Client, Options};
use slate_server::{Server, config::Config};

use crate::{document, lookup_ids, report::Report};

/// Published figure of the public project for 1,000 look-ups, one round trip each.
const REFERENCE_LOOKUPS_MS: f64 = 40.0;
/// Clients of the mixed load.
const CLIENTS: i32 = 64;
/// Documents of the mixed load.
const MIXED_DOCUMENTS: i32 = 10_000;
/// Time of the mixed load.
const MIXED_TIME: Duration = Duration::from_secs(3);

pub(crate) fn measure(report: &mut Report) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::start(Config::for_test()).await?;
        let client = Client::new(Options { connections: 1, ..Options::new(server.address().to_string()) });
        client.create_collection("c", Vec::new()).await?;
        for chunk in 0..100 {
            let documents: Vec<_> = (chunk * 1000..(chunk + 1) * 1000).map(document).collect();
            client.insert_many("c", &documents).await?;
        }
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let began = Instant::now();
            let calls: Vec<_> = lookup_ids()
                .map(|id| {
                    let client = client.clone();
                    tokio::spawn(async move { client.find_by_id("c", Bson::Int32(id)).await })
                })
                .collect();
            for call in calls {
                anyhow::ensure!(call.await??.is_some());
            }
            best = best.min(began.elapsed().as_secs_f64() * 1000.0);
        }
        let peers = [("the public project", REFERENCE_LOOKUPS_MS)];
        report.lower("TCP: 1,000 point look-ups, pipelined", "ms", best, &peers);
        report.alone("TCP: mixed 80% reads, 64 clients", "ops/s", mixed(&server).await?);
        server.stop().await;
        Ok(())
    })
}

/// Runs reads and writes by clients that wait for each answer, and returns operations per second.
async fn mixed(server: &Server) -> anyhow::Result<f64> {
    let client = Client::new(Options { connections: 8, ..Options::new(server.address().to_string()) });
    let began = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut done = 0;
                while began.elapsed() < MIXED_TIME {
                    let id = (number * 997 + done * 31).rem_euclid(MIXED_DOCUMENTS);
                    if done % 5 == 0 {
                        client
                            .update_many("c", &doc! { "_id": id }, &doc! { "$inc": { "score": 1 } })
                            .await?;
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
    Ok(f64::from(total) / began.elapsed().as_secs_f64())
}
