//! The PostgreSQL engine while connections are cut and the server is killed: nothing acknowledged is lost,
//! nothing refused is there, nothing happens twice.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod postgres_support;
#[path = "postgres_support/proxy.rs"]
mod proxy;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use orlop_store::{
    Delete, Error, Filter, KeyRange, Op, Put, Read, Requirement, Revision, Store, Terms, Txn, Watch,
};
use orlop_testbed::Cluster;
use postgres_support::{config, database, get, open, put, within};

/// Outcome of one create.
enum Fate {
    Acknowledged(Revision),
    Refused,
}

/// Creates keys from several tasks until `stop` is set. Returns the outcome of each.
async fn create_keys(
    store: &Store,
    prefix: &str,
    tasks: usize,
    stop: &Arc<AtomicBool>,
) -> HashMap<String, Fate> {
    let mut writers = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let (store, stop, prefix) = (store.clone(), stop.clone(), prefix.to_owned());
        writers.spawn(async move {
            let mut fates = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let key = format!("/{prefix}/{task}/{}", fates.len());
                let create = Txn::create(Put::new(key.clone(), key.clone()));
                fates.push(match store.txn(create).await {
                    Ok(result) => {
                        assert!(result.succeeded, "{key} was there before it was created");
                        (key, Fate::Acknowledged(result.revision))
                    }
                    Err(Error::Unavailable(_)) => (key, Fate::Refused),
                    Err(error) => panic!("{key}: {error}"),
                });
            }
            fates
        });
    }
    let mut all = HashMap::new();
    while let Some(fates) = within("the writers", writers.join_next()).await {
        all.extend(fates.unwrap());
    }
    all
}

/// Compares the acknowledged outcomes with the database and with a watch.
async fn check(store: &Store, fates: &HashMap<String, Fate>) -> usize {
    let everything = store.read(Read::new(KeyRange::all())).await.unwrap();
    let stored: BTreeMap<String, Revision> = everything
        .kvs
        .iter()
        .map(|kv| {
            assert_eq!((&kv.key, kv.version), (&kv.value, 1));
            (String::from_utf8(kv.key.to_vec()).unwrap(), kv.revision)
        })
        .collect();
    let mut acknowledged = 0;
    for (key, fate) in fates {
        match fate {
            Fate::Acknowledged(revision) => {
                assert_eq!(stored.get(key), Some(revision), "{key} was acknowledged");
                acknowledged += 1;
            }
            Fate::Refused => assert_eq!(stored.get(key), None, "{key} was refused"),
        }
    }
    assert_eq!(stored.len(), acknowledged, "everything there was acknowledged");
    // The log has every revision once, in order.
    let mut watcher = store.watch(Watch::new(KeyRange::all()).after(1)).await.unwrap();
    let mut last = 1;
    while last < everything.revision {
        let batch = within("the next event", watcher.next()).await.unwrap();
        for found in batch.events() {
            let kv = &found.event.kv;
            assert_eq!(kv.revision, last + 1, "revisions have no gaps");
            assert_eq!(stored.get(std::str::from_utf8(&kv.key).unwrap()), Some(&kv.revision));
            last = kv.revision;
        }
    }
    assert_eq!(last as usize, acknowledged + 1);
    acknowledged
}

/// Cuts connections from inside the server, many times a second, until `seconds` are over.
fn cut_connections(cluster: &Cluster, database: &str, condition: &str, seconds: f64) -> usize {
    let rounds = (seconds / 0.004) as usize;
    let statement = format!(
        "do $$ declare cut int; total int := 0; begin
            for i in 1..{rounds} loop
                perform pg_stat_clear_snapshot();
                select count(pg_terminate_backend(pid)) into cut from pg_stat_activity
                where datname = '{database}' and usename = 'orlop' and {condition};
                total := total + cut;
                perform pg_sleep(0.004);
            end loop;
            execute format('create table public.cut as select %s as total', total);
        end $$; select total from public.cut; drop table public.cut"
    );
    cluster.sql(database, &statement).unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_commit_is_resolved() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    let deadline = Instant::now() + Duration::from_secs(180);
    let (mut fates, mut cut, mut others) = (HashMap::new(), 0, 0);
    for round in 0.. {
        let stop = Arc::new(AtomicBool::new(false));
        let cutter = tokio::task::spawn_blocking({
            let (name, stop) = (name.clone(), stop.clone());
            move || {
                // While the commit waits for the disk, and at any other moment.
                let commits = "(query = 'commit' or query like 'with sure%')";
                let cut = cut_connections(cluster, &name, commits, 2.0);
                let others = cut_connections(cluster, &name, "random() < 0.2", 2.0);
                stop.store(true, Ordering::Relaxed);
                (cut, others)
            }
        });
        fates.extend(create_keys(&store, &format!("k{round}"), 8, &stop).await);
        let more = cutter.await.unwrap();
        (cut, others) = (cut + more.0, others + more.1);
        let acknowledged = check(&store, &fates).await;
        println!(
            "{acknowledged} of {} creates acknowledged, {cut} commits cut, {others} others",
            fates.len()
        );
        if acknowledged > 50 && cut > 0 && others > 0 {
            return;
        }
        assert!(Instant::now() < deadline, "too little happened");
    }
}

/// A proxy before the server, and the database's address by way of it.
async fn through_a_proxy(cluster: &Cluster, database: &str) -> (proxy::Proxy, String) {
    let proxy = proxy::Proxy::start(cluster.port()).await;
    let direct = format!("127.0.0.1:{}", cluster.port());
    let through = cluster.tcp_url(database).replace(&direct, &proxy.address()) + "?sslmode=disable";
    (proxy, through)
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_commit_response_is_resolved() {
    let (cluster, name) = database();
    let (proxy, through) = through_a_proxy(cluster, &name).await;
    let store = open(&through).await;
    let stop = Arc::new(AtomicBool::new(false));
    let cutter = tokio::spawn({
        let (stop, proxy) = (stop.clone(), proxy.clone());
        async move {
            within("sixteen cut commits", async {
                while proxy.cut_before() < 8 || proxy.cut_after() < 8 {
                    proxy.cut_soon();
                    tokio::task::yield_now().await;
                }
            })
            .await;
            stop.store(true, Ordering::Relaxed);
        }
    });
    let fates = create_keys(&store, "k", 8, &stop).await;
    cutter.await.unwrap();
    check(&store, &fates).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_commit_of_a_fenced_epoch_writes_nothing() {
    let (cluster, name) = database();
    let (proxy, through) = through_a_proxy(cluster, &name).await;
    let store = open(&through).await;
    for number in 0..10 {
        put(&store, &format!("/before/{number}"), "x").await;
    }
    proxy.hold_next();
    put(&store, "/late", "1").await;
    // Once its version is compacted away, nothing in the tables tells that it has been there.
    store
        .txn(Txn::of([Op::Delete(Delete { range: KeyRange::key("/late"), previous: false })]))
        .await
        .unwrap();
    let revision = put(&store, "/after", "x").await.revision;
    store.compact(revision).await.unwrap();
    let left = "select count(*) from orlop.log where key = '/late'";
    within("the compaction", async {
        while cluster.sql(&name, left).unwrap().trim() != "0" {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    let answer = within("an answer", proxy.deliver()).await.expect("a commit was held back");
    assert!(answer.windows(11).any(|word| word == b"INSERT 0 0\0"), "{answer:?}");
    assert_eq!(get(&store, "/late").await, None);
    assert_eq!(store.revision().await, Ok(revision));
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_gets_ambiguous_commit_while_the_outcome_is_unresolved() {
    let (cluster, name) = database();
    let (proxy, url) = through_a_proxy(cluster, &name).await;
    let hasty = orlop_store::Config { commit_timeout: std::time::Duration::from_millis(300), ..config(&url) };
    let store = Store::open(hasty).await.unwrap();
    let write = |value: &'static str| store.txn(Txn::of([orlop_store::Op::Put(Put::new("/k", value))]));
    within("a connection", async { while write("before").await.is_err() {} }).await;
    proxy.close(true);
    proxy.cut_soon();
    for value in ["lost", "behind it"] {
        let answer = within("an answer", write(value)).await;
        assert!(matches!(answer, Err(Error::AmbiguousCommit(_))), "{value}: {answer:?}");
    }
    proxy.close(false);
    within("service", async { while write("after").await.is_err() {} }).await;
    assert_eq!(get(&store, "/k").await.as_deref(), Some("after"));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_loses_no_commit_and_reuses_no_revision() {
    let cluster = Arc::new(Cluster::start().unwrap());
    let name = cluster.create_database().unwrap();
    let stores = [open(&cluster.url(&name)).await, open(&cluster.url(&name)).await];
    let stop = Arc::new(AtomicBool::new(false));
    let killer = tokio::task::spawn_blocking({
        let (cluster, stop, stores, handle) =
            (cluster.clone(), stop.clone(), stores.clone(), tokio::runtime::Handle::current());
        move || {
            for round in 0..4 {
                // Wait for traffic, so that each crash meets some.
                let before = handle.block_on(stores[0].revision()).unwrap();
                while handle.block_on(stores[0].revision()).unwrap() < before + 50 {}
                if round % 2 == 0 {
                    cluster.kill().unwrap();
                    cluster.start_again().unwrap();
                } else {
                    cluster.restart().unwrap();
                }
            }
            stop.store(true, Ordering::Relaxed);
        }
    });
    let (mut fates, others) =
        tokio::join!(create_keys(&stores[0], "a", 4, &stop), create_keys(&stores[1], "b", 4, &stop));
    killer.await.unwrap();
    fates.extend(others);
    for store in &stores {
        check(store, &fates).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_share_one_revision_sequence() {
    let (cluster, name) = database();
    let url = cluster.url(&name);
    // Opened at once: both create the tables, one of them in fact.
    let (first, second) = tokio::join!(open(&url), open(&url));
    let mut watchers = Vec::new();
    for store in [&first, &second] {
        watchers.push(store.watch(Watch::new(KeyRange::all()).after(1)).await.unwrap());
    }
    let write = async |store: &Store, who: &str| {
        for n in 0..100 {
            put(store, &format!("/{who}/{n}"), who).await;
        }
    };
    tokio::join!(write(&first, "first"), write(&second, "second"));
    let mut seen = Vec::new();
    for watcher in &mut watchers {
        let events = postgres_support::events(watcher, 200).await;
        assert_eq!(events.iter().map(|event| event.0).collect::<Vec<_>>(), (2..=201).collect::<Vec<_>>());
        seen.push(events);
    }
    assert_eq!(seen[0], seen[1]);
    // Compare-and-set between the two: of each pair of racing creates one wins.
    for n in 0..20 {
        let create = |who: &'static str| Txn::create(Put::new(format!("/race/{n}"), who));
        let (a, b) = tokio::join!(first.txn(create("a")), second.txn(create("b")));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert!(a.succeeded != b.succeeded);
        let winner = if a.succeeded { "a" } else { "b" };
        assert_eq!(get(&first, &format!("/race/{n}")).await.as_deref(), Some(winner));
    }
    // However often they took turns: one row for each, and one for nobody, who was before them.
    let turns = cluster.sql(&name, "select last_value from orlop.turn").unwrap();
    assert!(turns.trim().parse::<u64>().unwrap() > 20, "{turns}");
    assert_eq!(cluster.sql(&name, "select count(*) from orlop.writer").unwrap().trim(), "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn speculation_detects_writes_of_another_process() {
    let (cluster, name) = database();
    let url = cluster.url(&name);
    let stores = [open(&url).await, open(&url).await];
    let mut versions = [0; 3];
    // Runs of both processes over the same keys, so that each believes to know them when the other has moved them on.
    for (run, writes) in [5, 1, 1, 2, 1, 7, 3, 1, 1, 1, 4].into_iter().enumerate() {
        let store = &stores[run % 2];
        for write in 0..writes {
            let nth = (run + write) % 3;
            let key = format!("/shared/{nth}");
            let terms = Terms::new([("run", run.to_string())]);
            store.txn(Txn::of([Op::Put(Put { terms, ..Put::new(key.clone(), "x") })])).await.unwrap();
            versions[nth] += 1;
            let found = Filter(vec![Requirement::equals("run", run.to_string())]);
            let read = Read { filter: found, ..Read::new(KeyRange::key(key)) };
            let kvs = store.read(read).await.unwrap().kvs;
            assert_eq!(kvs.iter().map(|kv| kv.version).collect::<Vec<_>>(), [versions[nth]], "run {run}");
        }
    }
    let deleted = Txn::of([Op::Delete(Delete { range: KeyRange::key("/shared/0"), previous: false })]);
    stores[0].txn(deleted).await.unwrap();
    assert!(stores[1].txn(Txn::create(Put::new("/shared/0", "again"))).await.unwrap().succeeded);
    assert!(!stores[0].txn(Txn::create(Put::new("/shared/0", "twice"))).await.unwrap().succeeded);
    // Every term in the index is one of the last run over its key.
    let left = cluster.sql(&name, "select count(*) from orlop.terms").unwrap();
    assert_eq!(left.trim(), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_arrive_before_the_poll_interval() {
    let (cluster, name) = database();
    let patient = orlop_store::Config {
        poll_interval: std::time::Duration::from_secs(3600),
        ..config(&cluster.url(&name))
    };
    let first = Store::open(patient.clone()).await.unwrap();
    // Nobody listens yet but the writer itself.
    for round in 0..3 {
        put(&first, "/before", &round.to_string()).await;
    }
    let second = Store::open(patient).await.unwrap();
    let mut watcher = second.watch(Watch::new(KeyRange::all())).await.unwrap();
    for round in 0..3 {
        put(&first, "/k", &round.to_string()).await;
        assert_eq!(postgres_support::events(&mut watcher, 1).await[0].2, round.to_string());
        // The listening session is cut too; the next one looks for what it missed.
        cluster.terminate_connections(&name).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_fails_over() {
    let (cluster, name) = database();
    let url = cluster.url(&name);
    let (first, second) = (open(&url).await, open(&url).await);
    let leaders = || {
        let held = "select count(*) from pg_locks l join pg_database d on d.oid = l.database
                    where locktype = 'advisory' and mode = 'ExclusiveLock' and granted and datname = ";
        cluster.sql("postgres", &format!("{held}'{name}'")).unwrap().trim().to_owned()
    };
    let one_leads = async || {
        within("a leader", async {
            while leaders() != "1" {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    one_leads().await;
    first.close().await;
    one_leads().await;
    // The remaining process expires leases.
    second.grant(Some(5), std::time::Duration::from_secs(1)).await.unwrap();
    within("the lease to expire", async { while second.lease(5).await.is_ok() {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_expires_once_across_processes() {
    const LEASES: i64 = 20;
    let (cluster, name) = database();
    let url = cluster.url(&name);
    let (first, second) = (open(&url).await, open(&url).await);
    let mut watcher = second.watch(Watch::new(KeyRange::prefix("/lease/"))).await.unwrap();
    for id in 1..=LEASES {
        first.grant(Some(id), std::time::Duration::from_secs(1)).await.unwrap();
        let key = Put { lease: id, ..Put::new(format!("/lease/{id:02}"), "held") };
        first.txn(Txn::of([orlop_store::Op::Put(key)])).await.unwrap();
    }
    let events = postgres_support::events(&mut watcher, 2 * LEASES as usize).await;
    let mut gone: Vec<_> =
        events.iter().filter(|(.., value)| value.is_empty()).map(|(_, key, _)| key).collect();
    gone.sort_unstable();
    gone.dedup();
    assert_eq!(gone.len(), LEASES as usize, "{events:?}");
    // A second attempt on any of them would be a revision without an event, or an event more.
    put(&first, "/lease/last", "x").await;
    let last = postgres_support::events(&mut watcher, 1).await;
    assert_eq!(last, [(2 + 2 * LEASES, "/lease/last".into(), "x".into())]);
}
