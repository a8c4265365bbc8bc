//! The store beside kine's schema, on the same SQLite settings.

mod kine_postgres;
mod kine_sqlite;
pub(crate) mod postgres;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use orlop_store::{
    Config, Endpoint, Filter, KeyRange, Op, Put, Read, Requirement, Select, Store, Terms, Txn, Watch,
};

use self::kine_sqlite::{Kine, OneRow};
use crate::{
    load::{self, resident_mib},
    report::{Better, Report},
};

const KINE: &str = "kine's schema";
const VALUE_BYTES: usize = 1024;

/// Plan of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Duration of each load.
    pub(crate) time: Duration,
    /// Keys in the large database.
    pub(crate) many: usize,
    /// Only these parts; none are all.
    pub(crate) parts: Vec<Part>,
    /// Numbers of concurrent clients, for each load of writes.
    pub(crate) clients: Vec<usize>,
}

impl Plan {
    pub(crate) fn includes(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }
}

/// A part of the benchmark that can be run by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Writes by a few and by many clients.
    Writes,
    /// Gets, lists, counts and index queries over 10k keys.
    Reads,
    /// Writes seen by many watchers.
    Watches,
    /// A million keys: reading, walking, compacting, starting.
    Many,
}

pub(crate) fn value() -> Bytes {
    Bytes::from(vec![b'x'; VALUE_BYTES])
}

pub(crate) fn key(n: usize) -> String {
    format!("/registry/configmaps/default/object-{n:08}")
}

async fn open(endpoint: &Endpoint) -> anyhow::Result<Store> {
    Ok(Store::open(Config::new(endpoint.clone())).await?)
}

/// Measures everything on one endpoint. `folder` holds the peers' files.
pub(crate) async fn run(report: &mut Report, folder: &tempfile::TempDir, plan: &Plan) -> anyhow::Result<()> {
    let path = |name: &str| folder.path().join(name);
    if plan.includes(Part::Writes) {
        writes(report, path("writes.db"), path("kine.db"), path("one.db"), plan).await?;
    }
    if plan.includes(Part::Reads) {
        lists(report, path("lists.db"), path("kine-lists.db"), plan).await?;
    }
    if plan.includes(Part::Watches) {
        watches(report, path("watch.db"), plan).await?;
    }
    if plan.includes(Part::Many) {
        many_keys(report, path("many.db"), plan).await?;
    }
    Ok(())
}

async fn writes(
    report: &mut Report,
    ours: PathBuf,
    kine: PathBuf,
    one: PathBuf,
    plan: &Plan,
) -> anyhow::Result<()> {
    let store = open(&Endpoint::Sqlite(ours)).await?;
    let kine = Kine::open(&kine)?;
    let one = OneRow::open(&one)?;
    let started = Instant::now();
    let mut rows = 0;
    while started.elapsed() < plan.time {
        one.insert(&value())?;
        rows += 1;
    }
    let bare = f64::from(rows) / started.elapsed().as_secs_f64();
    for clients in plan.clients.iter().copied() {
        let writer = store.clone();
        let written = load::run(clients, plan.time, move |client, n| {
            let (store, put) = (writer.clone(), Put::new(key(client * 1000 + n % 1000), value()));
            async move { store.txn(Txn::of([Op::Put(put)])).await.is_ok() }
        })
        .await;
        let peer = load::run_threads(clients, plan.time, |client, n| {
            kine.put(&key(client * 1000 + n % 1000), &value()).is_ok()
        });
        let rate = format!("sqlite: writes of 1 KiB, {clients} clients");
        report.beside(rate, "/s", Better::Higher, written.per_second, KINE, peer.per_second);
        let slowest = format!("sqlite: their 99th percentile, {clients} clients");
        report.beside(slowest, "ms", Better::Lower, written.quantile_ms(0.99), KINE, peer.quantile_ms(0.99));
        if clients == 1 {
            let name = "sqlite: one client beside a bare one-row insert";
            report.beside(name, "/s", Better::Higher, written.per_second, "a bare insert", bare);
        }
    }
    Ok(())
}

async fn lists(report: &mut Report, ours: PathBuf, kine: PathBuf, plan: &Plan) -> anyhow::Result<()> {
    const KEYS: usize = 10_000;
    let store = open(&Endpoint::Sqlite(ours)).await?;
    let kine = Kine::open(&kine)?;
    fill(&store, KEYS, |n| Terms::new([("app", format!("app-{}", n % 100))])).await?;
    for n in 0..KEYS {
        kine.put(&key(n), &value())?;
    }
    for clients in [1, 16] {
        let reader = store.clone();
        let got =
            load::run(clients, plan.time, move |client, n| {
                let (store, key) = (reader.clone(), key((client * 7919 + n * 31) % KEYS));
                async move {
                    store.read(Read::new(KeyRange::key(key))).await.is_ok_and(|read| read.kvs.len() == 1)
                }
            })
            .await;
        let peer = load::run_threads(clients, plan.time, |client, n| {
            let key = key((client * 7919 + n * 31) % KEYS);
            kine.list(&key, &format!("{key}\0"), 1).is_ok_and(|bytes| bytes > 0)
        });
        let name = format!("sqlite: gets of 1 KiB, {clients} clients");
        report.beside(name, "/s", Better::Higher, got.per_second, KINE, peer.per_second);
    }
    let prefix = || KeyRange::prefix("/registry/configmaps/");
    let reader = store.clone();
    let listed = load::run(1, plan.time, move |_, _| {
        let (store, read) = (reader.clone(), Read::new(prefix()));
        async move { store.read(read).await.is_ok_and(|read| read.kvs.len() == KEYS) }
    })
    .await;
    let peer = load::run_threads(1, plan.time, |_, _| {
        kine.list("/registry/configmaps/", "/registry/configmaps0", -1)
            .is_ok_and(|bytes| bytes > KEYS * VALUE_BYTES)
    });
    let megabytes = (KEYS * VALUE_BYTES) as f64 / 1e6;
    let (rate, peer_rate) = (listed.per_second * megabytes, peer.per_second * megabytes);
    report.beside("sqlite: list of 10k x 1 KiB", "MB/s", Better::Higher, rate, KINE, peer_rate);

    let indexed = |read: Read| {
        let store = store.clone();
        load::run(1, plan.time, move |_, _| {
            let (store, read) = (store.clone(), read.clone());
            async move { store.read(read).await.is_ok_and(|read| read.kvs.len() == KEYS / 100) }
        })
    };
    let filter = Filter(vec![Requirement::equals("app", "app-7")]);
    let found = indexed(Read { filter, ..Read::new(prefix()) }).await;
    report.beside(
        "sqlite: 100 of 10k by an index term",
        "/s",
        Better::Higher,
        found.per_second,
        "kine's list of all",
        peer.per_second,
    );
    let counter = store.clone();
    let counted =
        load::run(1, plan.time, move |_, _| {
            let store = counter.clone();
            async move {
                store.read(Read::count(prefix())).await.is_ok_and(|read| read.count == Some(KEYS as u64))
            }
        })
        .await;
    report.alone("sqlite: count of 10k", "/s", counted.per_second);
    Ok(())
}

async fn watches(report: &mut Report, ours: PathBuf, plan: &Plan) -> anyhow::Result<()> {
    for watchers in [1, 100, 1000] {
        let store = open(&Endpoint::Sqlite(ours.with_extension(format!("{watchers}.db")))).await?;
        let seen = Arc::new(AtomicUsize::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..watchers {
            let mut watch = store.watch(Watch::new(KeyRange::prefix("/registry/"))).await?;
            let seen = seen.clone();
            tasks.spawn(async move {
                while let Ok(batch) = watch.next().await {
                    seen.fetch_add(batch.events().count(), Ordering::Relaxed);
                }
            });
        }
        let writer = store.clone();
        let started = Instant::now();
        let written = load::run(16, plan.time, move |client, n| {
            let (store, put) = (writer.clone(), Put::new(key(client * 1000 + n % 1000), value()));
            async move { store.txn(Txn::of([Op::Put(put)])).await.is_ok() }
        })
        .await;
        let expected = (written.per_second * plan.time.as_secs_f64()) as usize * watchers;
        let deadline = Instant::now() + Duration::from_secs(30);
        while seen.load(Ordering::Relaxed) < expected * 99 / 100 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let rate = seen.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
        report.alone(format!("sqlite: events delivered, {watchers} watchers of everything"), "/s", rate);
        report.alone(
            format!("sqlite: writes meanwhile, 16 clients, {watchers} watchers"),
            "/s",
            written.per_second,
        );
        tasks.abort_all();
    }
    Ok(())
}

async fn many_keys(report: &mut Report, ours: PathBuf, plan: &Plan) -> anyhow::Result<()> {
    const FEW: usize = 10_000;
    let few = open(&Endpoint::Sqlite(ours.with_extension("few.db"))).await?;
    fill(&few, FEW, |_| Terms::none()).await?;
    let endpoint = Endpoint::Sqlite(ours);
    let store = open(&endpoint).await?;
    let filling = Instant::now();
    fill(&store, plan.many, |_| Terms::none()).await?;
    let rate = plan.many as f64 / filling.elapsed().as_secs_f64();
    report.alone(format!("sqlite: filling {} keys, 256 clients", plan.many), "/s", rate);
    let gets = |store: &Store, keys: usize| {
        let reader = store.clone();
        move |client: usize, n: usize| {
            let (store, key) = (reader.clone(), key((client * 7919 + n * 104_729) % keys));
            async move { store.read(Read::new(KeyRange::key(key))).await.is_ok_and(|read| read.kvs.len() == 1) }
        }
    };
    let (of_many, of_few) = load::in_turns(4, plan.time, gets(&store, plan.many), gets(&few, FEW)).await;
    few.close().await;
    let name = format!("sqlite: 99th percentile of a get, {} keys", plan.many);
    report.beside(name, "ms", Better::Lower, of_many.quantile_ms(0.99), "10k keys", of_few.quantile_ms(0.99));
    let counting = Instant::now();
    let counted = store.read(Read::count(KeyRange::all())).await?;
    anyhow::ensure!(counted.count == Some(plan.many as u64), "counted {:?}", counted.count);
    report.alone(
        format!("sqlite: count of {} keys", plan.many),
        "ms",
        counting.elapsed().as_secs_f64() * 1e3,
    );
    let walking = Instant::now();
    let (mut range, mut pages, mut revision) = (KeyRange::all(), 0, None);
    loop {
        let read =
            Read { limit: 500, count: true, revision, select: Select::Keys, ..Read::new(range.clone()) };
        let page = store.read(read).await?;
        pages += 1;
        revision = Some(revision.unwrap_or(page.revision));
        match page.kvs.last() {
            Some(last) if page.more => range = range.after(&last.key),
            _ => break,
        }
    }
    report.alone(
        format!("sqlite: walk of {pages} pages of 500 with counts"),
        "s",
        walking.elapsed().as_secs_f64(),
    );

    // Every key written twice, then the first versions compacted away while a client writes, and once
    // more without that.
    fill(&store, plan.many.min(200_000), |_| Terms::none()).await?;
    let before = store.size().await?;
    store.compact(store.revision().await?).await?;
    let writes = || {
        let store = store.clone();
        load::run(1, plan.time, move |_, n| {
            let (store, put) = (store.clone(), Put::new(format!("/other/{}", n % 100), value()));
            async move { store.txn(Txn::of([Op::Put(put)])).await.is_ok() }
        })
    };
    let compacting = Instant::now();
    let compaction = async {
        store.wait_for_compaction().await?;
        anyhow::Ok(compacting.elapsed())
    };
    let (took, written) = tokio::join!(compaction, writes());
    let rate = plan.many.min(200_000) as f64 / took?.as_secs_f64();
    report.alone("sqlite: versions forgotten", "/s", rate);
    let alone = writes().await;
    let name = "sqlite: slowest write meanwhile";
    let (slowest, without) = (written.quantile_ms(1.0), alone.quantile_ms(1.0));
    report.beside(name, "ms", Better::Lower, slowest, "without compaction", without);
    let after = store.size().await?;
    report.alone(
        "sqlite: file size after compaction, of before",
        "",
        after.total as f64 / before.total as f64,
    );
    report.alone(format!("sqlite: RSS with {} keys of 1 KiB", plan.many), "MiB", resident_mib());
    store.close().await;
    let starting = Instant::now();
    let store = open(&endpoint).await?;
    store.read(Read::new(KeyRange::key(key(1)))).await?;
    report.alone(
        format!("sqlite: start with {} keys", plan.many),
        "ms",
        starting.elapsed().as_secs_f64() * 1e3,
    );
    Ok(())
}

pub(crate) async fn fill(store: &Store, keys: usize, terms: impl Fn(usize) -> Terms) -> anyhow::Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..keys {
        while tasks.len() >= 256 {
            tasks.join_next().await.transpose()?.transpose()?;
        }
        let (store, put) = (store.clone(), Put { terms: terms(n), ..Put::new(key(n), value()) });
        tasks.spawn(async move { store.txn(Txn::of([Op::Put(put)])).await });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
