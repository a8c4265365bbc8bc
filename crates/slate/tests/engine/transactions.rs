//! Atomicity, isolation and group commit.

use std::sync::{Arc, Barrier};

use bson::{Bson, RawDocumentBuf, doc};
use slate::{Engine, Error, IndexSpec, Query, Transaction};

use super::{ids, on_every_store, query, update, with_documents};

fn raw(document: &bson::Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("raw")
}

#[test]
fn transaction_over_several_collections_is_all_or_nothing() {
    on_every_store(|engine| {
        with_documents(engine, [doc! { "_id": 1, "balance": 10 }]);
        engine.create_collection("log").expect("create");
        let transfer = |id: i32| {
            engine.write(move |transaction| {
                transaction.insert("log", &raw(&doc! { "_id": id }))?;
                transaction.create_collection(&format!("made{id}"))?;
                transaction.insert("c", &raw(&doc! { "_id": id }))
            })
        };
        transfer(2).expect("commits");
        assert!(matches!(transfer(1), Err(Error::DuplicateKey { .. })));
        assert_eq!(engine.document_count("log").expect("count"), 1);
        assert!(engine.collection("made2").is_ok());
        assert!(matches!(engine.collection("made1"), Err(Error::NoCollection(_))));
    });
}

#[test]
fn failed_job_does_not_affect_others_of_its_commit() {
    on_every_store(|engine| {
        with_documents(engine, []);
        let tickets: Vec<_> = (0..10)
            .map(|n| {
                let id = n / 2;
                engine.submit(move |transaction| transaction.insert("c", &raw(&doc! { "_id": id })))
            })
            .collect();
        let results: Vec<bool> = tickets.into_iter().map(|ticket| ticket.wait().is_ok()).collect();
        assert_eq!(results, [true, false].repeat(5));
        assert_eq!(ids(engine, doc! {}), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn reader_sees_one_snapshot_while_writers_change_everything() {
    on_every_store(|engine| {
        with_documents(engine, (0..500).map(|id| doc! { "_id": id, "v": 0 }));
        engine.create_index("c", IndexSpec::on(&["v"]).expect("a spec")).expect("index");
        let mut seen = 0;
        engine
            .visit("c", &Query::default(), &mut |document| {
                if seen == 0 {
                    update(engine, doc! {}, doc! { "$set": { "v": 1 } }).expect("update");
                    let gone = query(doc! { "_id": { "$gte": 250 } });
                    engine.write(move |transaction| transaction.delete("c", &gone)).expect("delete");
                }
                seen += 1;
                assert_eq!(document.get_i32("v").expect("v"), 0);
                Ok(true)
            })
            .expect("visit");
        assert_eq!(seen, 500);
        assert_eq!(ids(engine, doc! { "v": 1 }).len(), 250);
    });
}

#[test]
fn concurrent_increments_are_not_lost() {
    on_every_store(|engine| {
        with_documents(engine, [doc! { "_id": 1, "n": 0 }]);
        let barrier = Arc::new(Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let barrier = Arc::clone(&barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for _ in 0..25 {
                        update(engine, doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } }).expect("update");
                    }
                });
            }
        });
        assert_eq!(ids(engine, doc! { "n": 200 }), [1]);
    });
}

#[test]
fn index_never_disagrees_with_documents_under_concurrent_writes() {
    on_every_store(|engine| {
        with_documents(engine, (0..50).map(|id| doc! { "_id": id, "v": 0 }));
        engine.create_index("c", IndexSpec::on(&["v"]).expect("a spec")).expect("index");
        std::thread::scope(|scope| {
            for worker in 0..3 {
                scope.spawn(move || {
                    for round in 0..40 {
                        let id = (worker * 17 + round * 7) % 50;
                        update(engine, doc! { "_id": id }, doc! { "$inc": { "v": 1 } }).expect("update");
                    }
                });
            }
            scope.spawn(move || {
                for _ in 0..40 {
                    // Found through the index, every document has the value it was found by.
                    let mut total = 0;
                    engine
                        .visit("c", &query(doc! { "v": { "$gte": 0 } }), &mut |document| {
                            assert!(document.get_i32("v").is_ok());
                            total += 1;
                            Ok(true)
                        })
                        .expect("visit");
                    assert_eq!(total, 50);
                }
            });
        });
        let sum: i32 = engine
            .find("c", &Query::default())
            .expect("find")
            .iter()
            .map(|document| document.get_i32("v").expect("v"))
            .sum();
        assert_eq!(sum, 120);
    });
}

#[test]
fn panic_in_a_job_is_rolled_back_and_strands_nobody() {
    on_every_store(|engine| {
        with_documents(engine, []);
        let broken = engine.submit(|transaction| -> slate::Result<()> {
            transaction.insert("c", &raw(&doc! { "_id": 1 }))?;
            unreachable!("on purpose")
        });
        let sound = engine.submit(|transaction| transaction.insert("c", &raw(&doc! { "_id": 2 })));
        assert!(sound.wait().is_ok());
        assert!(matches!(broken.wait(), Err(Error::Cancelled)));
        assert_eq!(ids(engine, doc! {}), [2]);
    });
}

#[test]
fn try_write_commits_inline_or_returns_the_job() {
    let engine = &Engine::in_memory();
    with_documents(engine, [doc! { "_id": 1 }]);
    let insert = |id: i32| {
        let job = move |transaction: &mut Transaction<'_>| transaction.insert("c", &raw(&doc! { "_id": id }));
        engine.try_write(job).ok()
    };
    assert!(matches!(insert(2), Some(Ok(Bson::Int32(2)))));
    assert!(matches!(insert(2), Some(Err(Error::DuplicateKey { .. }))));
    // Another transaction is being run.
    let other = engine.clone();
    let handed_back = engine.write(move |_| Ok(other.try_write(|_| Ok(())).is_err()));
    assert!(handed_back.expect("a transaction"));
    // What fails or panics leaves no trace, and the next one is run.
    let failed = engine.try_write(|transaction| {
        transaction.insert("c", &raw(&doc! { "_id": 3 }))?;
        transaction.create_collection("c")
    });
    assert!(matches!(failed, Ok(Err(Error::CollectionExists(_)))));
    let panicked = engine.try_write(|transaction| -> slate::Result<()> {
        transaction.insert("c", &raw(&doc! { "_id": 3 }))?;
        panic!("as the test wants")
    });
    assert!(matches!(panicked, Ok(Err(Error::Cancelled))));
    assert_eq!(ids(engine, doc! {}), [1, 2]);
    assert!(matches!(insert(3), Some(Ok(_))));
    assert_eq!(engine.document_count("c").expect("count"), 3);
}
