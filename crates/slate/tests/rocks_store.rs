//! Durability of the rocks store, and the directories that it refuses.
#![cfg(feature = "rocks")]

#[path = "support/rocks.rs"]
mod rocks;

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use bson::doc;
use rocks::open_with;
use slate::{Build, Engine, Error, IndexSpec, Query, store::RocksOptions};

/// Set in the process that is killed.
const VICTIM: &str = "SLATE_TEST_VICTIM";

fn rocks(path: &std::path::Path) -> slate::Result<Engine> {
    open_with(path, RocksOptions::default().resident_bytes)
}

#[test]
fn documents_indexes_and_counts_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    {
        let engine = rocks(folder.path()).expect("open");
        engine.create_collection("c").expect("create");
        for id in 0..1500 {
            let engine = &engine;
            drop(engine.submit(move |transaction| {
                let document =
                    bson::RawDocumentBuf::try_from(&doc! { "_id": id, "t": [id, -id] }).expect("raw");
                transaction.insert("c", &document)
            }));
        }
        engine.insert("c", &doc! { "_id": "last" }).expect("insert");
        assert!(engine.try_write(|_| Ok(())).is_err(), "a commit waits for the disk");
        engine.create_index("c", IndexSpec::on(&["t"]).expect("a spec")).expect("index");
        engine.start_index("c", IndexSpec::on(&["u"]).expect("a spec")).expect("start");
        assert!(!engine.build_step("c", "u_1").expect("step"));
    }
    let engine = rocks(folder.path()).expect("reopen");
    assert_eq!(engine.document_count("c").expect("count"), 1501);
    let collection = engine.collection("c").expect("the collection");
    assert!(collection.indexes[0].multikey && collection.indexes[0].is_ready());
    assert!(matches!(collection.indexes[1].build, Build::Building { indexed: 1000, .. }));
    while engine.build_pending().expect("build") {}
    assert!(engine.collection("c").expect("the collection").indexes[1].is_ready());
    let found = engine.find("c", &Query::parse(&doc! { "t": -7 }, &doc! {}, &doc! {}).expect("a query"));
    assert_eq!(found.expect("find").len(), 1);
    // Spaces are not reused.
    engine.drop_index("c", "t_1").expect("drop");
    engine.create_index("c", IndexSpec::on(&["t"]).expect("a spec")).expect("index");
}

#[test]
fn spaces_beyond_the_budget_are_read_from_disk_until_they_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let matching = |engine: &Engine, filter| {
        let query = Query::parse(&filter, &doc! { "n": -1 }, &doc! {}).expect("a query");
        let found = engine.find("c", &query).expect("find");
        found.iter().map(|document| document.get_i32("n").expect("n")).collect::<Vec<_>>()
    };
    // Nothing in memory, the index, everything, and again the index.
    for (round, resident_bytes) in (0..).zip([0, 40 << 10, 128 << 20, 40 << 10]) {
        let engine = open_with(folder.path(), resident_bytes).expect("open");
        if round == 0 {
            engine.create_collection("c").expect("create");
            engine.create_index("c", IndexSpec::on(&["n"]).expect("a spec")).expect("index");
        }
        let documents: Vec<_> = (round * 500..(round + 1) * 500)
            .map(|n| bson::RawDocumentBuf::try_from(&doc! { "_id": n, "n": n, "pad": "x".repeat(100) }))
            .collect::<Result<_, _>>()
            .expect("raw");
        engine.write(move |transaction| transaction.insert_many("c", &documents, true)).expect("insert");
        assert_eq!(engine.reads_without_blocking(), resident_bytes == 128 << 20, "round {round}");
        let last = (round + 1) * 500 - 1;
        assert_eq!(matching(&engine, doc! { "n": { "$gt": last - 3 } }), [last, last - 1, last - 2]);
        let deleted = Query::parse(&doc! { "n": round * 500 }, &doc! {}, &doc! {}).expect("a query");
        engine.write(move |transaction| transaction.delete("c", &deleted)).expect("delete");
        assert!(matching(&engine, doc! { "n": round * 500 }).is_empty());
        assert_eq!(engine.get("c", &bson::Bson::Int32(last), |_| ()).expect("get"), Some(()));
        let validation = engine.validate("c").expect("validate");
        assert_eq!((validation.documents as i32, validation.faults), ((round + 1) * 499, Vec::new()));
    }
}

#[test]
fn second_opening_of_a_directory_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let _first = rocks(folder.path()).expect("open");
    let second = rocks(folder.path());
    assert!(
        matches!(&second, Err(Error::DataDirectory { reason, .. }) if reason.contains("in use")),
        "{second:?}"
    );
}

#[test]
fn foreign_damaged_and_future_directories_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("PG_VERSION"), "15").expect("write");
    let foreign = rocks(folder.path());
    assert!(
        matches!(&foreign, Err(Error::DataDirectory { reason, .. }) if reason.contains("PG_VERSION")),
        "{foreign:?}"
    );

    let folder = tempfile::tempdir().expect("a folder");
    drop(rocks(folder.path()).expect("open"));
    std::fs::write(folder.path().join("SLATE_FORMAT"), "slate rocks 99\n").expect("write");
    assert!(
        matches!(rocks(folder.path()), Err(Error::DataDirectory { reason, .. }) if reason.contains("format"))
    );

    let folder = tempfile::tempdir().expect("a folder");
    drop(rocks(folder.path()).expect("open"));
    std::fs::remove_file(folder.path().join("rocks/CURRENT")).expect("remove");
    assert!(
        matches!(rocks(folder.path()), Err(Error::DataDirectory { reason, .. }) if reason.contains("damaged"))
    );
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    let folder = tempfile::tempdir().expect("a folder");
    if let Some(path) = std::env::var_os(VICTIM) {
        write_until_killed(std::path::Path::new(&path));
    }
    for round in 0..3 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "nothing_acknowledged_is_lost_by_kill_9", "--nocapture"])
            .env(VICTIM, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut acknowledged = Vec::new();
        for line in output.lines().map_while(Result::ok) {
            if let Some(id) = line.strip_prefix("ack ") {
                acknowledged.push(id.parse::<i64>().expect("a number"));
                if acknowledged.len() == 40 {
                    child.kill().expect("kill -9");
                }
            }
        }
        child.wait().expect("its end");
        assert!(acknowledged.len() >= 40, "round {round}");
        let engine = rocks(folder.path()).expect("reopen");
        for id in &acknowledged {
            let found = engine.get("c", &bson::Bson::Int64(*id), |_| ()).expect("get");
            assert!(found.is_some(), "round {round}: {id} was acknowledged");
            let indexed = Query::parse(&doc! { "v": id }, &doc! {}, &doc! {}).expect("a query");
            assert_eq!(engine.count("c", &indexed).expect("count"), 1, "round {round}: {id} is indexed");
        }
        let all = engine.find("c", &Query::default()).expect("find").len() as u64;
        assert_eq!(engine.document_count("c").expect("count"), all);
    }
}

/// Writes from several threads and prints what is acknowledged, until the parent kills this process.
fn write_until_killed(path: &std::path::Path) -> ! {
    let engine = rocks(path).expect("open");
    if engine.create_collection("c").is_ok() {
        engine.create_index("c", IndexSpec::on(&["v"]).expect("a spec")).expect("index");
    }
    let start = engine.document_count("c").expect("count") as i64 * 1000;
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let engine = &engine;
            scope.spawn(move || {
                for n in 0.. {
                    let id = start + n * 4 + worker;
                    engine.insert("c", &doc! { "_id": id, "v": id }).expect("insert");
                    println!("ack {id}");
                }
            });
        }
    });
    std::process::exit(0)
}
