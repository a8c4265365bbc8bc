//! Every update operator.

use bson::{Document, doc};
use slate::{Error, IndexSpec, Query, Update};

use super::{ids, on_every_store, only, query, update, with_documents};

#[test]
fn operators_change_documents() {
    let cases: Vec<(Document, Document, Document)> = vec![
        (doc! { "a": 1 }, doc! { "$set": { "a": 2, "b.c": 3 } }, doc! { "a": 2, "b": { "c": 3 } }),
        (doc! { "a": 1, "b": 2 }, doc! { "$unset": { "a": "" } }, doc! { "b": 2 }),
        (doc! { "a": 1 }, doc! { "$inc": { "a": 2, "b": 5 } }, doc! { "a": 3, "b": 5 }),
        (doc! { "a": i32::MAX }, doc! { "$inc": { "a": 1 } }, doc! { "a": 2_147_483_648_i64 }),
        (doc! { "a": 2 }, doc! { "$mul": { "a": 2.5, "b": 2 } }, doc! { "a": 5.0, "b": 0 }),
        (doc! { "a": 5 }, doc! { "$min": { "a": 3 }, "$max": { "b": 1 } }, doc! { "a": 3, "b": 1 }),
        (doc! { "a": 5 }, doc! { "$max": { "a": 3 } }, doc! { "a": 5 }),
        (doc! { "a": 5 }, doc! { "$rename": { "a": "b.c" } }, doc! { "b": { "c": 5 } }),
        (doc! { "l": [1] }, doc! { "$push": { "l": 2 } }, doc! { "l": [1, 2] }),
        (doc! { "l": [1] }, doc! { "$lpush": { "l": 2 } }, doc! { "l": [2, 1] }),
        (
            doc! { "l": [1] },
            doc! { "$push": { "l": { "$each": [3, 2], "$sort": 1, "$slice": -2 } } },
            doc! { "l": [2, 3] },
        ),
        (doc! { "l": [1, 2, 3] }, doc! { "$pop": { "l": 1 } }, doc! { "l": [1, 2] }),
        (doc! { "l": [1, 2, 3] }, doc! { "$pop": { "l": -1 } }, doc! { "l": [2, 3] }),
        (doc! { "l": [1] }, doc! { "$addToSet": { "l": { "$each": [1, 2, 2] } } }, doc! { "l": [1, 2] }),
        (doc! { "l": [1, 5, 9] }, doc! { "$pull": { "l": { "$gt": 4 } } }, doc! { "l": [1] }),
        (
            doc! { "l": [{ "k": 1 }, { "k": 2 }] },
            doc! { "$pull": { "l": { "k": 1 } } },
            doc! { "l": [{ "k": 2 }] },
        ),
        (doc! { "l": [1, 2, 1] }, doc! { "$pullAll": { "l": [1] } }, doc! { "l": [2] }),
        (
            doc! { "l": [{ "k": 1 }] },
            doc! { "$set": { "l.0.k": 2, "l.2": 9 } },
            doc! { "l": [{ "k": 2 }, null, 9] },
        ),
        (doc! { "a": 1 }, doc! { "$setOnInsert": { "b": 1 } }, doc! { "a": 1 }),
    ];
    on_every_store(|engine| {
        for (before, change, after) in &cases {
            let mut before = before.clone();
            before.insert("_id", 1);
            with_documents(engine, [before.clone()]);
            update(engine, doc! {}, change.clone()).expect("update");
            let mut found = only(engine);
            found.remove("_id");
            assert_eq!(found, *after, "{before} {change}");
            engine.drop_collection("c").expect("drop");
        }
    });
}

#[test]
fn current_date_is_that_of_the_update() {
    on_every_store(|engine| {
        with_documents(engine, [doc! { "_id": 1 }]);
        let before = bson::DateTime::now();
        update(engine, doc! {}, doc! { "$currentDate": { "at": true } }).expect("update");
        let at = *only(engine).get_datetime("at").expect("a date");
        assert!(before <= at && at <= bson::DateTime::now(), "{at}");
    });
}

#[test]
fn refused_updates_leave_no_trace() {
    on_every_store(|engine| {
        with_documents(engine, [doc! { "_id": 1, "a": "text", "b": 1 }, doc! { "_id": 2, "a": 1, "b": 1 }]);
        for change in [
            doc! { "$inc": { "b": 1, "a": 1 } },
            doc! { "$set": { "_id": 9 } },
            doc! { "$push": { "b": 1 } },
            doc! { "$set": { "a.b": 1 } },
        ] {
            let refused = update(engine, doc! {}, change.clone());
            assert!(matches!(refused, Err(Error::Invalid(_))), "{change}: {refused:?}");
        }
        assert_eq!(ids(engine, doc! { "b": 1 }), [1, 2]);
        for malformed in [
            doc! { "$what": { "a": 1 } },
            doc! { "$set": 1 },
            doc! { "$set": { "a": 1 }, "b": 2 },
            doc! { "$set": { "a": 1 }, "$inc": { "a": 1 } },
            doc! { "$set": { "a": 1, "a.b": 1 } },
            doc! { "$set": { "a.$.b": 1 } },
        ] {
            assert!(Update::parse(&malformed).is_err(), "{malformed}");
        }
    });
}

#[test]
fn upsert_starts_from_the_equalities_of_its_filter() {
    on_every_store(|engine| {
        engine.create_collection("c").expect("create");
        let filter = query(doc! { "_id": 5, "a.b": 1, "c": { "$gt": 3 } });
        let change =
            Update::parse(&doc! { "$inc": { "n": 1 }, "$setOnInsert": { "new": true } }).expect("update");
        let run = move |engine: &slate::Engine| {
            let (filter, change) = (filter.clone(), change.clone());
            engine.write(move |transaction| transaction.update("c", &filter, &change, true))
        };
        assert_eq!(run(engine).expect("upsert").upserted, Some(bson::Bson::Int32(5)));
        assert_eq!(only(engine), doc! { "_id": 5, "a": { "b": 1 }, "n": 1, "new": true });
        // It does not match `c > 3`, so the second upsert collides.
        assert!(matches!(run(engine), Err(Error::DuplicateKey { .. })));
    });
}

#[test]
fn upsert_many_replaces_and_merge_many_keeps_fields() {
    on_every_store(|engine| {
        with_documents(engine, [doc! { "_id": 1, "a": 1, "b": 1 }]);
        let raw = |document: Document| bson::RawDocumentBuf::try_from(&document).expect("raw");
        let merged = vec![raw(doc! { "_id": 1, "a": 2 }), raw(doc! { "_id": 2 })];
        let counts = engine.write(move |transaction| transaction.upsert_many("c", &merged, true));
        assert_eq!(counts.expect("merge"), (1, 1));
        let found = engine.find("c", &query(doc! { "_id": 1 })).expect("find");
        assert_eq!(Document::try_from(&found[0]).expect("a document"), doc! { "_id": 1, "a": 2, "b": 1 });
        let replaced = vec![raw(doc! { "_id": 1, "c": 3 })];
        engine.write(move |transaction| transaction.upsert_many("c", &replaced, false)).expect("upsert");
        let found = engine.find("c", &query(doc! { "_id": 1 })).expect("find");
        assert_eq!(Document::try_from(&found[0]).expect("a document"), doc! { "_id": 1, "c": 3 });
    });
}

#[test]
fn indexes_follow_updates_and_deletions() {
    on_every_store(|engine| {
        with_documents(engine, (0..10).map(|id| doc! { "_id": id, "a": id % 2, "t": [id, id + 1] }));
        engine.create_index("c", IndexSpec::on(&["a"]).expect("a spec")).expect("index");
        engine.create_index("c", IndexSpec::on(&["t"]).expect("a spec")).expect("index");
        update(engine, doc! { "_id": { "$lt": 4 } }, doc! { "$set": { "a": 7 }, "$pop": { "t": 1 } })
            .expect("update");
        assert_eq!(ids(engine, doc! { "a": 7 }), [0, 1, 2, 3]);
        assert_eq!(ids(engine, doc! { "a": 0 }), [4, 6, 8]);
        assert_eq!(ids(engine, doc! { "t": 4 }), [4]);
        let gone = query(doc! { "a": 7 });
        assert_eq!(engine.write(move |transaction| transaction.delete("c", &gone)).expect("delete"), 4);
        assert!(ids(engine, doc! { "a": 7 }).is_empty());
        assert_eq!(engine.count("c", &Query::default()).expect("count"), 6);
    });
}
