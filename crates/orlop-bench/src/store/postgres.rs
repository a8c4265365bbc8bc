//! The store beside kine's schema, on the same throw-away PostgreSQL.

use std::{sync::Arc, time::Instant};

use orlop_store::{Config, Endpoint, Filter, KeyRange, Op, Put, Read, Requirement, Store, Terms, Txn};
use orlop_testbed::Cluster;

use super::{Part, Plan, fill, key, kine_postgres::Kine, value};
use crate::{
    load,
    report::{Better, Report},
};

const KINE: &str = "kine's schema";
const KEYS: usize = 10_000;
/// Clients at the most: each of the peer's has a connection.
const CONNECTIONS: usize = 150;

/// Measures everything on a cluster of its own.
pub(crate) async fn run(report: &mut Report, plan: &Plan) -> anyhow::Result<()> {
    let cluster = tokio::task::spawn_blocking(Cluster::start).await?.map_err(anyhow::Error::msg)?;
    let database = || cluster.create_database().map_err(anyhow::Error::msg);
    if plan.includes(Part::Writes) {
        writes(report, &cluster.url(&database()?), &cluster.url(&database()?), plan).await?;
    }
    if plan.includes(Part::Reads) {
        reads(report, &cluster.url(&database()?), &cluster.url(&database()?), plan).await?;
    }
    Ok(())
}

async fn open(url: &str) -> anyhow::Result<Store> {
    Ok(Store::open(Config::new(Endpoint::parse(url)?)).await?)
}

/// A connection for each client.
async fn kines(url: &str, clients: usize) -> anyhow::Result<Arc<Vec<Kine>>> {
    let mut kines = Vec::new();
    for _ in 0..clients {
        kines.push(Kine::open(url).await?);
    }
    Ok(Arc::new(kines))
}

async fn writes(report: &mut Report, ours: &str, kine: &str, plan: &Plan) -> anyhow::Result<()> {
    let store = open(ours).await?;
    Kine::create(kine).await?;
    for clients in plan.clients.iter().map(|clients| (*clients).min(CONNECTIONS)) {
        let writer = store.clone();
        let written = load::run(clients, plan.time, move |client, n| {
            let (store, put) = (writer.clone(), Put::new(key(client * 1000 + n % 1000), value()));
            async move { store.txn(Txn::of([Op::Put(put)])).await.is_ok() }
        })
        .await;
        let connections = kines(kine, clients).await?;
        let peers = connections.clone();
        let peer = load::run(clients, plan.time, move |client, n| {
            let peers = peers.clone();
            async move { peers[client].put(&key(client * 1000 + n % 1000), &value()).await.is_ok() }
        })
        .await;
        let rate = format!("postgres: writes of 1 KiB, {clients} clients");
        report.beside(rate, "/s", Better::Higher, written.per_second, KINE, peer.per_second);
        let slowest = format!("postgres: their 99th percentile, {clients} clients");
        report.beside(slowest, "ms", Better::Lower, written.quantile_ms(0.99), KINE, peer.quantile_ms(0.99));
        if clients == 1 {
            let writer = store.clone();
            let ours = move |_, n: usize| {
                let (store, put) = (writer.clone(), Put::new(key(n % 1000), value()));
                async move { store.txn(Txn::of([Op::Put(put)])).await.is_ok() }
            };
            let bare = move |_, _| {
                let connections = connections.clone();
                async move { connections[0].one_row(&value()).await.is_ok() }
            };
            let (written, bare) = load::in_turns(1, plan.time, ours, bare).await;
            let name = "postgres: one client beside a bare one-row insert";
            report.beside(name, "/s", Better::Higher, written.per_second, "a bare insert", bare.per_second);
        }
    }
    Ok(())
}

async fn reads(report: &mut Report, ours: &str, kine: &str, plan: &Plan) -> anyhow::Result<()> {
    let store = open(ours).await?;
    Kine::create(kine).await?;
    fill(&store, KEYS, |n| Terms::new([("app", format!("app-{}", n % 100))])).await?;
    let kines = kines(kine, 16).await?;
    let filling = Instant::now();
    for n in 0..KEYS {
        kines[0].put(&key(n), &value()).await?;
    }
    report.alone("postgres: kine's schema filled with 10k keys", "s", filling.elapsed().as_secs_f64());
    kines[0].settle().await?;
    for clients in [1, 16] {
        let (reader, peers) = (store.clone(), kines.clone());
        let nth = |client: usize, n: usize| key((client * 7919 + n * 31) % KEYS);
        let got = load::run(clients, plan.time, move |client, n| {
            let (store, read) = (reader.clone(), Read::new(KeyRange::key(nth(client, n))));
            async move { store.read(read).await.is_ok_and(|read| read.kvs.len() == 1) }
        })
        .await;
        let peer = load::run(clients, plan.time, move |client, n| {
            let (peers, key) = (peers.clone(), nth(client, n));
            async move { peers[client].list(&key, &format!("{key}!"), 1).await.is_ok_and(|bytes| bytes > 0) }
        })
        .await;
        let name = format!("postgres: gets of 1 KiB, {clients} clients");
        report.beside(name, "/s", Better::Higher, got.per_second, KINE, peer.per_second);
    }
    let repeat = async |store: &Store, read: Read, keys: usize| {
        let store = store.clone();
        let done = load::run(1, plan.time, move |_, _| {
            let (store, read) = (store.clone(), read.clone());
            async move { store.read(read).await.is_ok_and(|read| read.kvs.len() == keys) }
        });
        done.await.per_second
    };
    let everything = || Read::new(KeyRange::prefix("/registry/configmaps/"));
    // Once with the values that were just written or listed still at hand, once with none ever kept.
    let warm = repeat(&store, everything(), KEYS).await;
    let without = Config { value_cache_bytes: 0, ..Config::new(Endpoint::parse(ours)?) };
    let cold = repeat(&Store::open(without).await?, everything(), KEYS).await;
    let peer = load::run(1, plan.time, move |_, _| {
        let kines = kines.clone();
        async move {
            let bytes = kines[0].list("/registry/configmaps/", "/registry/configmaps0", i64::MAX).await;
            bytes.is_ok_and(|bytes| bytes > KEYS * value().len())
        }
    })
    .await;
    let megabytes = (KEYS * value().len()) as f64 / 1e6;
    for (listed, name) in [(warm, "values at hand"), (cold, "values from the database")] {
        let name = format!("postgres: list of 10k x 1 KiB, {name}");
        let (rate, peer_rate) = (listed * megabytes, peer.per_second * megabytes);
        report.beside(name, "MB/s", Better::Higher, rate, KINE, peer_rate);
    }
    let filter = Filter(vec![Requirement::equals("app", "app-7")]);
    let found = repeat(&store, Read { filter, ..everything() }, KEYS / 100).await;
    let name = "postgres: 100 of 10k by an index term";
    report.beside(name, "/s", Better::Higher, found, "kine's list of all", peer.per_second);
    Ok(())
}
