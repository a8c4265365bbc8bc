//! The PostgreSQL engine through the store: every statement it has, at least once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod postgres_support;

use std::time::Duration;

use orlop_store::{
    Compare, Comparison, Config, Delete, Endpoint, Error, Filter, KeyRange, Op, OpResult, Put, Read,
    Requirement, Select, Store, Target, Terms, Txn, Watch,
};
use postgres_support::{database, events, get, metrics, open, put, within};

#[tokio::test]
async fn writes_reads_and_history() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    assert_eq!(store.revision().await.unwrap(), 1);
    let created = store.txn(Txn::create(Put::new("/a/1", "one"))).await.unwrap();
    assert!(created.succeeded);
    assert_eq!(created.revision, 2);
    let lost = store.txn(Txn::create(Put::new("/a/1", "again"))).await.unwrap();
    assert!(!lost.succeeded);
    assert_eq!(lost.found().unwrap().value, "one");
    put(&store, "/a/1", "two").await;
    put(&store, "/a/2", "zwei").await;
    put(&store, "/b/1", "elsewhere").await;
    assert_eq!(store.revision().await.unwrap(), 5);

    let list = store.read(Read { count: true, ..Read::new(KeyRange::prefix("/a/")) }).await.unwrap();
    assert_eq!((list.revision, list.count, list.more), (5, Some(2), false));
    assert_eq!(list.kvs[0].value, "two");
    assert_eq!((list.kvs[0].version, list.kvs[0].create_revision, list.kvs[0].revision), (2, 2, 3));
    let first = Read { limit: 1, count: true, ..Read::new(KeyRange::all()) };
    let first = store.read(first).await.unwrap();
    assert_eq!((first.kvs.len(), first.more, first.count), (1, true, Some(3)));
    let keys = store.read(Read { select: Select::Keys, ..Read::new(KeyRange::all()) }).await.unwrap();
    assert!(keys.kvs.iter().all(|kv| kv.value.is_empty()) && keys.kvs.len() == 3);
    assert_eq!(store.read(Read::count(KeyRange::starting_at("/a/2"))).await.unwrap().count, Some(2));

    let past = |revision| Read { revision: Some(revision), count: true, ..Read::new(KeyRange::all()) };
    let then = store.read(past(2)).await.unwrap();
    assert_eq!((then.kvs.len(), then.count, then.revision), (1, Some(1), 5));
    assert_eq!(then.kvs[0].value, "one");
    assert_eq!(store.read(past(1)).await.unwrap().kvs.len(), 0);
    assert_eq!(store.read(past(6)).await.unwrap_err(), Error::FutureRevision { requested: 6, current: 5 });
}

#[tokio::test]
async fn lists_fetch_only_uncached_values() {
    const KEYS: u64 = 100;
    let (cluster, name) = database();
    let (store, peer) = (open(&cluster.url(&name)).await, open(&cluster.url(&name)).await);
    let write = |value: &'static str, keys| {
        Txn::of((0..keys).map(move |n| Op::Put(Put::new(format!("/k/{n:03}"), value))))
    };
    let list = async || {
        let all = store.read(Read::new(KeyRange::prefix("/k/"))).await.unwrap();
        let values: Vec<_> = all.kvs.iter().map(|kv| kv.value.clone()).collect();
        let new = values.iter().filter(|value| **value == "new").count();
        (values.len(), new)
    };
    // Values of a list, and those that were not cached.
    let asked = || {
        let metrics = metrics(&store);
        let number = |result| {
            let name = format!("orlop_store_listed_values_total{{result=\"{result}\"}} ");
            let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
            line.unwrap().parse::<u64>().unwrap()
        };
        (number("hit"), number("miss"))
    };
    // By another process, so that nothing is cached here.
    peer.txn(write("old", KEYS)).await.unwrap();
    assert_eq!((list().await, asked()), ((100, 0), (0, KEYS)));
    assert_eq!((list().await, asked()), ((100, 0), (KEYS, KEYS)));
    peer.txn(write("new", 30)).await.unwrap();
    assert_eq!((list().await, asked()), ((100, 30), (2 * KEYS - 30, KEYS + 30)));
    // A missing row is damage, cached or not.
    peer.txn(write("new", 40)).await.unwrap();
    cluster.sql(&name, "delete from orlop.log where id = (select max(id) from orlop.log)").unwrap();
    let damaged = store.read(Read::new(KeyRange::prefix("/k/"))).await;
    assert_eq!(damaged.unwrap_err(), Error::Corrupt { key: "/k/039".into() });
}

#[tokio::test]
async fn transactions_over_ranges_and_values() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    for n in 0..10 {
        put(&store, &format!("/k/{n}"), &format!("v{n}")).await;
    }
    let same = Compare::new(KeyRange::key("/k/3"), Comparison::Equal, Target::Value("v3".into()));
    let all_old = Compare::new(KeyRange::prefix("/k/"), Comparison::Less, Target::Revision(100));
    let between = KeyRange::between("/k/2", "/k/5");
    let txn = Txn {
        compares: vec![same, all_old],
        then: vec![
            Op::Delete(Delete { range: between.clone(), previous: true }),
            Op::Put(Put { previous: true, ..Put::new("/k/9", "new") }),
            Op::Read(Read { count: true, ..Read::new(KeyRange::prefix("/k/")) }),
            Op::Read(Read { revision: Some(3), ..Read::new(KeyRange::prefix("/k/")) }),
            Op::Txn(Txn::guarded(
                Compare::new(KeyRange::key("/k/2"), Comparison::Equal, Target::Version(1)),
                Op::Put(Put::new("/k/x", "nested")),
            )),
        ],
        otherwise: vec![],
    };
    let result = store.txn(txn).await.unwrap();
    assert!(result.succeeded);
    assert_eq!(result.revision, 12);
    let OpResult::Delete { deleted: 3, previous } = &result.results[0] else { panic!("{result:?}") };
    assert_eq!(previous.iter().map(|kv| &kv.value[..]).collect::<Vec<_>>(), [b"v2", b"v3", b"v4"]);
    let OpResult::Put(Some(replaced)) = &result.results[1] else { panic!("{result:?}") };
    assert_eq!(replaced.value, "v9");
    let OpResult::Read(now) = &result.results[2] else { panic!("{result:?}") };
    assert_eq!((now.kvs.len(), now.count), (7, Some(7)));
    assert_eq!(now.kvs[6].value, "new");
    let OpResult::Read(then) = &result.results[3] else { panic!("{result:?}") };
    assert_eq!(then.kvs.len(), 2);
    assert_eq!(get(&store, "/k/x").await.as_deref(), Some("nested"));

    let twice = Txn::of([Op::Put(Put::new("/d", "1")), Op::Put(Put::new("/d", "2"))]);
    assert!(matches!(store.txn(twice).await, Err(Error::DuplicateKey { .. })));
    let keep = Put { keep_value: true, ..Put::new("/none", "") };
    assert!(matches!(store.txn(Txn::of([Op::Put(keep)])).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn filters_apply_to_live_and_past_versions() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    let write = async |n: usize, app: &str, zone: &str| {
        let terms = Terms::new([("app", app), ("zone", zone), ("odd\0", "zero\0byte")]);
        let put = Put { terms, ..Put::new(format!("/p/{n:04}"), format!("value {n}")) };
        store.txn(Txn::of([Op::Put(put)])).await.unwrap().revision
    };
    let mut before = 0;
    for n in 0..60 {
        before = write(n, if n % 3 == 0 { "web" } else { "db" }, &format!("z{}", n % 5)).await;
    }
    let list = async |filter: Vec<Requirement>, limit: usize, revision: Option<i64>| {
        let read = Read {
            filter: Filter(filter),
            limit,
            revision,
            count: true,
            ..Read::new(KeyRange::prefix("/p/"))
        };
        let result = store.read(read).await.unwrap();
        (result.kvs.len(), result.more, result.count.unwrap())
    };
    let web = || Requirement::equals("app", "web");
    assert_eq!(list(vec![web()], 0, None).await, (20, false, 20));
    assert_eq!(list(vec![web()], 7, None).await, (7, true, 20));
    assert_eq!(list(vec![web(), Requirement::equals("zone", "z0")], 0, None).await, (4, false, 4));
    let zones = Requirement::In("zone".into(), vec!["z1".into(), "z2".into()]);
    assert_eq!(list(vec![zones, Requirement::not_equals("app", "web")], 0, None).await, (16, false, 16));
    assert_eq!(list(vec![Requirement::Exists("odd\0".into())], 0, None).await, (60, false, 60));
    assert_eq!(list(vec![Requirement::Absent("app".into())], 0, None).await, (0, false, 0));
    assert_eq!(list(vec![Requirement::not_equals("app", "web")], 10, None).await, (10, true, 40));
    for n in 0..60 {
        write(n, "gone", "z0").await;
    }
    assert_eq!(list(vec![web()], 0, None).await, (0, false, 0));
    assert_eq!(list(vec![web()], 0, Some(before)).await, (20, false, 20));

    store
        .declare_index(KeyRange::prefix("/p/"), "2", |kv| {
            Terms::new([("app", "declared"), ("length", &kv.value.len().to_string()[..])])
        })
        .await
        .unwrap();
    assert_eq!(list(vec![Requirement::equals("app", "declared")], 0, None).await, (60, false, 60));
    assert_eq!(list(vec![Requirement::equals("length", "7")], 0, None).await, (10, false, 10));
    assert_eq!(list(vec![Requirement::Exists("zone".into())], 0, None).await, (0, false, 0));
    assert_eq!(cluster.sql(&name, "select count(*) from orlop.terms").unwrap().trim(), "120");
}

#[tokio::test]
async fn compaction_deletes_strictly_below_its_revision() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    for n in 0..20 {
        put(&store, "/hot", &n.to_string()).await; // revisions 2..=21
    }
    put(&store, "/gone", "x").await; // 22
    let gone = store.txn(Txn::remove("/gone", 22)).await.unwrap(); // 23
    assert!(gone.succeeded);
    put(&store, "/hot", "last").await; // 24
    store.compact(23).await.unwrap();
    within("compaction", store.wait_for_compaction()).await.unwrap();
    let at = |revision| Read { revision: Some(revision), ..Read::new(KeyRange::key("/hot")) };
    assert_eq!(store.read(at(22)).await.unwrap_err(), Error::Expired { compacted: 23 });
    assert_eq!(store.read(at(23)).await.unwrap().kvs[0].value, "19");
    assert_eq!(store.read(at(24)).await.unwrap().kvs[0].value, "last");
    // The deletion at exactly the compacted revision is still seen, and what it deleted.
    let watch = Watch::new(KeyRange::all()).after(22).previous();
    let mut watcher = store.watch(watch).await.unwrap();
    let batch = within("the deletion", watcher.next()).await.unwrap();
    let event = batch.events().next().unwrap().event;
    assert!(event.deleted);
    assert_eq!(event.previous.as_ref().unwrap().kv(&event.kv.key).unwrap().value, "x");
    assert!(matches!(store.watch(Watch::new(KeyRange::all()).after(21)).await, Err(Error::Expired { .. })));
    // 19, last, the deletion and the version it deleted.
    assert_eq!(cluster.sql(&name, "select count(*) from orlop.log").unwrap().trim(), "4");
    let history = "select convert_from(key, 'UTF8') || '@' || superseded_at from orlop.history";
    assert_eq!(cluster.sql(&name, history).unwrap().trim(), "/gone@23");
    store.compact(24).await.unwrap();
    within("compaction", store.wait_for_compaction()).await.unwrap();
    assert_eq!(cluster.sql(&name, "select count(*) from orlop.log").unwrap().trim(), "2");
    assert_eq!(cluster.sql(&name, history).unwrap().trim(), "");
    assert_eq!(get(&store, "/hot").await.as_deref(), Some("last"));
    assert_eq!(store.revision().await.unwrap(), 24);
}

/// As a database of the third schema has it.
#[tokio::test]
async fn dense_history_is_read_and_compacted() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    for n in 2..=6 {
        put(&store, "/k", &n.to_string()).await;
    }
    let every = "insert into orlop.history
        select later.key, later.revision, v.id, v.revision, v.create_revision, v.version, v.lease
        from orlop.log later join orlop.log v on v.id = later.previous";
    cluster.sql(&name, every).unwrap();
    put(&store, "/k", "7").await;
    for revision in 2..=7 {
        let read = Read { revision: Some(revision), count: true, ..Read::new(KeyRange::all()) };
        let then = store.read(read).await.unwrap();
        assert_eq!((&then.kvs[0].value[..], then.count), (revision.to_string().as_bytes(), Some(1)));
    }
    store.compact(7).await.unwrap();
    within("compaction", store.wait_for_compaction()).await.unwrap();
    assert_eq!(cluster.sql(&name, "select count(*) from orlop.history").unwrap().trim(), "0");
}

#[tokio::test]
async fn leases_survive_and_expire() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    let lease = store.grant(None, std::time::Duration::from_secs(1)).await.unwrap();
    let long = store.grant(Some(7), std::time::Duration::from_secs(1000)).await.unwrap();
    assert_eq!(
        store.grant(Some(7), std::time::Duration::from_secs(5)).await,
        Err(Error::LeaseExists { lease: 7 })
    );
    for (key, lease) in [("/l/1", lease.id), ("/l/2", lease.id), ("/l/3", long.id)] {
        let put = Put { lease, ..Put::new(key, "x") };
        store.txn(Txn::of([Op::Put(put)])).await.unwrap();
    }
    assert_eq!(store.lease_keys(lease.id).await.unwrap(), ["/l/1", "/l/2"]);
    let mut watcher = store.watch(Watch::new(KeyRange::prefix("/l/"))).await.unwrap();
    let gone = events(&mut watcher, 2).await;
    assert_eq!(gone[0].0, gone[1].0, "all keys of a lease go at one revision");
    assert!(matches!(store.lease(lease.id).await, Err(Error::LeaseNotFound { .. })));
    drop(store);
    let store = open(&cluster.url(&name)).await;
    assert_eq!(store.leases().await.unwrap().len(), 1);
    assert!(store.keep_alive(7).await.unwrap().remaining_ms > 990_000);
    store.revoke(7).await.unwrap();
    assert_eq!(get(&store, "/l/3").await, None);
}

#[tokio::test]
async fn damaged_row_fails_only_its_key() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    put(&store, "/whole", "fine").await;
    put(&store, "/damaged", "fine").await;
    cluster.sql(&name, r"update orlop.log set value = '\x00' where key = '/damaged'").unwrap();
    let read = Read::new(KeyRange::key("/damaged"));
    assert_eq!(store.read(read).await, Err(Error::Corrupt { key: "/damaged".into() }));
    assert_eq!(get(&store, "/whole").await.as_deref(), Some("fine"));
    // Another process reads the log: only watchers of the key fail.
    let other = open(&cluster.url(&name)).await;
    let mut watcher = other.watch(Watch::new(KeyRange::key("/whole")).after(1)).await.unwrap();
    assert_eq!(events(&mut watcher, 1).await[0].2, "fine");
    let mut watcher = other.watch(Watch::new(KeyRange::key("/damaged")).after(1)).await.unwrap();
    assert!(matches!(within("the damage", watcher.next()).await, Err(Error::Corrupt { .. })));
    let removed =
        store.txn(Txn::of([Op::Delete(Delete { range: KeyRange::key("/damaged"), previous: false })]));
    assert_eq!(removed.await.unwrap().results.len(), 1);
    assert_eq!(get(&store, "/damaged").await, None);
}

#[tokio::test]
async fn missing_past_version_is_corrupt() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    put(&store, "/whole", "fine").await; // 2
    for n in 3..=5 {
        put(&store, "/lost", &n.to_string()).await;
    }
    cluster.sql(&name, "delete from orlop.log where revision = 4").unwrap();
    let at = |key: &'static str, revision| Read { revision: Some(revision), ..Read::new(KeyRange::key(key)) };
    for revision in [3, 4] {
        let lost = store.read(at("/lost", revision)).await;
        assert_eq!(lost, Err(Error::Corrupt { key: "/lost".into() }));
    }
    assert_eq!(store.read(at("/lost", 5)).await.unwrap().kvs[0].value, "5");
    assert_eq!(store.read(at("/whole", 4)).await.unwrap().kvs[0].value, "fine");
}

#[tokio::test]
async fn newer_schema_is_refused_and_superuser_is_not_needed() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    put(&store, "/a", "1").await;
    let roles = "select rolsuper or rolcreaterole or rolcreatedb from pg_roles where rolname = 'orlop'";
    assert_eq!(cluster.sql(&name, roles).unwrap().trim(), "f");
    cluster.sql(&name, "update orlop.schema_version set version = 99").unwrap();
    let refused = orlop_store::Store::open(postgres_support::config(&cluster.url(&name))).await;
    assert_eq!(refused.unwrap_err(), Error::NewerSchema { found: 99, known: 5 });
}

#[tokio::test(flavor = "multi_thread")]
async fn database_of_the_first_schema_is_migrated() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    put(&store, "/k", &"x".repeat(5_000)).await;
    store.close().await;
    let back = "drop view orlop.head; drop sequence orlop.turn; alter table orlop.log drop column written;
        alter table orlop.state drop column bytes, drop column process, drop column batch, drop column turn,
            add column revision bigint not null default 2, add column last_id bigint not null default 1;
        alter table orlop.writer drop column turn, drop column last_id;
        create index log_revision on orlop.log (revision, id);
        update orlop.schema_version set version = 1";
    cluster.sql(&name, back).unwrap();
    let store = open(&cluster.url(&name)).await;
    assert_eq!(get(&store, "/k").await.map(|value| value.len()), Some(5_000));
    put(&store, "/k", &"x".repeat(5_000)).await;
    let size = store.size().await.unwrap();
    assert!((5_000..20_000).contains(&size.used), "{size:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_of_both_engines_restore_into_postgresql() {
    let (cluster, name) = database();
    let folder = tempfile::tempdir().unwrap();
    let endpoints = [Endpoint::Memory, Endpoint::parse(&cluster.url(&name)).unwrap()];
    for (number, endpoint) in endpoints.into_iter().enumerate() {
        let source = Store::open(Config { retention: None, ..Config::new(endpoint) }).await.unwrap();
        source.grant(Some(5), Duration::from_secs(600)).await.unwrap();
        put(&source, "a", "1").await;
        put(&source, "a", "2").await;
        let held = Put { lease: 5, terms: Terms::new([("x", "y")]), ..Put::new("b", "3") };
        source.txn(Txn::of([Op::Put(held)])).await.unwrap();
        source.set_metadata("kept", "beside").await.unwrap();
        source.compact(2).await.unwrap();
        let copy = folder.path().join(format!("{number}.db"));
        source.snapshot(&copy).await.unwrap();

        let target = cluster.url(&cluster.create_database().unwrap());
        let config = || Config { retention: None, ..Config::new(Endpoint::parse(&target).unwrap()) };
        assert_eq!(Store::restore(&config(), &copy).await, Ok(4));
        let restored = Store::open(config()).await.unwrap();
        assert_eq!((restored.revision().await, restored.compacted().await), (Ok(4), Ok(2)));
        let past = Read { revision: Some(2), ..Read::new(KeyRange::all()) };
        assert_eq!(restored.read(past).await.unwrap().kvs[0].value, "1");
        let filter = Filter(vec![Requirement::equals("x", "y")]);
        let found = restored.read(Read { filter, ..Read::new(KeyRange::all()) }).await.unwrap();
        assert_eq!((found.kvs.len(), &found.kvs[0].key[..]), (1, &b"b"[..]));
        assert_eq!(restored.lease_keys(5).await.unwrap(), ["b"]);
        assert!(restored.lease(5).await.unwrap().remaining_ms > 500_000);
        assert_eq!(restored.metadata("kept").await.unwrap().as_deref(), Some("beside"));
        assert_eq!(put(&restored, "c", "goes on").await.revision, 5);
        assert!(restored.size().await.unwrap().used > 0);
        let again = Store::restore(&config(), &copy).await;
        assert!(matches!(again, Err(Error::Invalid(_))), "{again:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_advisory_locks_is_refused() {
    let (cluster, name) = database();
    // A role that may not call the function stands in for a server that does not have it.
    let role = format!("plain_{name}");
    cluster
        .sql(
            &name,
            &format!(
                "create role \"{role}\" login superuser; alter role \"{role}\" nosuperuser;
                 grant all on database \"{name}\" to \"{role}\";
                 revoke execute on function pg_advisory_lock_shared(int, int) from public"
            ),
        )
        .unwrap();
    let (scheme, rest) =
        cluster.url(&name).split_once("://").map(|(s, r)| (s.to_owned(), r.to_owned())).unwrap();
    let after_user = rest.split_once('@').map_or(rest.as_str(), |(_, host)| host);
    let error =
        Store::open(postgres_support::config(&format!("{scheme}://{role}@{after_user}"))).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("does not provide session-level advisory locks"), "{text}");
}
