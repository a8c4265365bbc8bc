//! Connections of the PostgreSQL engine: TLS, passwords, redaction; and snapshots.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod postgres_support;

use std::sync::OnceLock;

use orlop_store::{Endpoint, Error, Filter, KeyRange, Op, Put, Read, Requirement, Store, Terms, Txn, Watch};
use orlop_testbed::{Cluster, Options};
use postgres_support::{config, database, events, get, open, put};

/// A cluster that speaks TLS.
fn secure() -> &'static Cluster {
    static SECURE: OnceLock<Cluster> = OnceLock::new();
    SECURE.get_or_init(|| Cluster::start_with(&Options { tls: true, ..Options::default() }).unwrap())
}

/// Returns true if the session that writes is encrypted.
fn encrypted(cluster: &Cluster, database: &str) -> bool {
    let sql = "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid)
               where usename = 'orlop' and datname = ";
    cluster.sql("postgres", &format!("{sql}'{database}'")).unwrap().trim() == "t"
}

#[tokio::test]
async fn sslmode_matches_libpq() {
    let cluster = secure();
    let authority = cluster.folder().join("ca.crt").display().to_string();
    let other = cluster.folder().join("client.crt").display().to_string();
    let by_address = |name: &str| cluster.tcp_url(name);
    let by_name = |name: &str| cluster.tcp_url(name).replace("127.0.0.1", "localhost");
    let wrong_name = |name: &str| {
        cluster.tcp_url(name).replace("127.0.0.1", "127.0.0.1.nip.test") + "?hostaddr=127.0.0.1&"
    };
    let works = [
        (by_address("x") + "?sslmode=disable", false),
        (by_address("x"), true),
        (by_address("x") + "?sslmode=prefer", true),
        (by_address("x") + "?sslmode=require", true),
        (by_address("x") + "?sslmode=require&sslrootcert=" + &authority, true),
        (by_address("x") + "?sslmode=verify-ca&sslrootcert=" + &authority, true),
        (wrong_name("x") + "sslmode=verify-ca&sslrootcert=" + &authority, true),
        (by_address("x") + "?sslmode=verify-full&sslrootcert=" + &authority, true),
        (by_name("x") + "?sslmode=verify-full&sslrootcert=" + &authority, true),
    ];
    for (url, secure) in works {
        let name = cluster.create_database().unwrap();
        let url = url.replace("/x?", &format!("/{name}?"));
        let url = url.strip_suffix("/x").map_or(url.clone(), |base| format!("{base}/{name}"));
        let store = Store::open(config(&url)).await.unwrap_or_else(|error| panic!("{url}: {error}"));
        put(&store, "/a", "1").await;
        assert_eq!(encrypted(cluster, &name), secure, "{url}");
    }
    let name = cluster.create_database().unwrap();
    for url in [
        by_address(&name) + "?sslmode=verify-ca&sslrootcert=" + &other,
        by_address(&name) + "?sslmode=require&sslrootcert=" + &other,
        wrong_name(&name) + "sslmode=verify-full&sslrootcert=" + &authority,
        by_address(&name) + "?sslmode=verify-full&sslrootcert=/does/not/exist",
    ] {
        let error = Store::open(config(&url)).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_) | Error::Invalid(_)), "{url}: {error}");
        assert!(!error.to_string().contains(cluster.password()), "{error}");
    }
}

#[tokio::test]
async fn client_certificate_authenticates_without_password() {
    let cluster = secure();
    cluster.create_database_named("certonly").unwrap();
    let folder = cluster.folder().display();
    let base = format!("postgres://orlop@127.0.0.1:{}/certonly?sslmode=require", cluster.port());
    let store = open(&format!("{base}&sslcert={folder}/client.crt&sslkey={folder}/client.key")).await;
    put(&store, "/a", "1").await;
    assert!(matches!(Store::open(config(&base)).await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn passwords_are_read_from_files_and_never_logged() {
    let (cluster, name) = database();
    let file = cluster.folder().join(format!("password-{name}"));
    std::fs::write(&file, format!("{}\n", cluster.password())).unwrap();
    let passfile = cluster.folder().join(format!("pgpass-{name}"));
    std::fs::write(&passfile, format!("*:{}:{name}:orlop:{}\n", cluster.port(), cluster.password())).unwrap();
    let bare = format!("postgres://orlop@127.0.0.1:{}/{name}", cluster.port());
    for url in [
        cluster.tcp_url(&name),
        format!("{bare}?password={}", cluster.password()),
        format!("{bare}?password_file={}", file.display()),
        format!("{bare}?passfile={}", passfile.display()),
    ] {
        let config = config(&url);
        let store = Store::open(config.clone()).await.unwrap();
        put(&store, "/a", "1").await;
        for shown in [format!("{config:?}"), format!("{store:?}"), config.endpoint.to_string()] {
            assert!(!shown.contains(cluster.password()), "{shown}");
        }
    }
    for url in [
        bare.clone(),
        bare.replace("orlop@", "orlop:wr0ng@"),
        bare.replace("orlop@", "nobody:wr0ng@"),
        format!("{bare}?password_file=/does/not/exist"),
        format!("{bare}_missing?password={}", cluster.password()),
    ] {
        let error = Store::open(config(&url)).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        for shown in [error.to_string(), format!("{error:?}")] {
            assert!(!shown.contains("wr0ng") && !shown.contains(cluster.password()), "{shown}");
        }
    }
}

#[tokio::test]
async fn stores_in_different_schemas_are_separate() {
    let (cluster, name) = database();
    let (first, second) =
        (open(&cluster.url(&name)).await, open(&(cluster.url(&name) + "?schema=another")).await);
    put(&first, "/a", "1").await;
    assert_eq!(get(&second, "/a").await, None);
    assert_eq!(second.revision().await.unwrap(), 1);
}

#[tokio::test]
async fn snapshot_is_independent_of_its_source() {
    let (cluster, name) = database();
    let store = open(&cluster.url(&name)).await;
    for n in 0..1000 {
        let terms = Terms::new([("parity", if n % 2 == 0 { "even" } else { "odd" })]);
        let put = Put { terms, ..Put::new(format!("/k/{:03}", n % 600), format!("value {n}")) };
        store.txn(Txn::of([Op::Put(put)])).await.unwrap();
    }
    store.grant(Some(9), std::time::Duration::from_secs(1000)).await.unwrap();
    store.compact(700).await.unwrap();
    store.wait_for_compaction().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.db");
    store.snapshot(&path).await.unwrap();
    assert!(matches!(store.snapshot(&path).await, Err(Error::Invalid(_))), "never over another file");
    put(&store, "/after", "the copy").await;

    let copy = Store::open(orlop_store::Config {
        retention: None,
        ..orlop_store::Config::new(Endpoint::Sqlite(path.clone()))
    })
    .await
    .unwrap();
    assert_eq!(copy.revision().await.unwrap(), 1001);
    assert_eq!(copy.compacted().await.unwrap(), 700);
    for revision in [None, Some(700), Some(850)] {
        let filter = Filter(vec![Requirement::equals("parity", "odd")]);
        let read = Read { revision, filter, count: true, ..Read::new(KeyRange::prefix("/k/")) };
        let (ours, theirs) = (copy.read(read.clone()).await.unwrap(), store.read(read).await.unwrap());
        assert_eq!((&ours.kvs, ours.count), (&theirs.kvs, theirs.count));
    }
    let mut watchers = Vec::new();
    for store in [&store, &copy] {
        let mut watcher = store.watch(Watch::new(KeyRange::prefix("/k/")).after(699)).await.unwrap();
        watchers.push(events(&mut watcher, 302).await);
    }
    assert_eq!(watchers[0], watchers[1]);
    assert_eq!(copy.leases().await.unwrap().len(), 1);
    put(&copy, "/k/000", "goes on").await;
    assert_eq!(copy.revision().await.unwrap(), 1002);
    copy.close().await;
    let name = path.display().to_string();
    for file in [name.clone(), format!("{name}-wal"), format!("{name}-shm")] {
        let _ = std::fs::remove_file(file);
    }
}
