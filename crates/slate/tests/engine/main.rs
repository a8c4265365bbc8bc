//! One suite over every store: the engine behaves the same on all of them.

#[path = "../support/mod.rs"]
mod support;

mod aggregations;
mod builds;
mod deadlines;
mod filters;
mod lookups;
mod plans;
mod transactions;
mod updates;

use bson::{Bson, Document, doc};
use slate::{Engine, Error, Filter, IndexSpec, Query, Update};
use support::on_every_store;

/// Creates the collection `c` with documents.
fn with_documents(engine: &Engine, documents: impl IntoIterator<Item = Document>) {
    engine.create_collection("c").expect("create");
    for document in documents {
        engine.insert("c", &document).expect("insert");
    }
}

fn query(filter: Document) -> Query {
    Query::new(Filter::parse(&filter).expect("a filter"))
}

/// Returns the `_id`s that a query finds, sorted.
fn ids(engine: &Engine, filter: Document) -> Vec<i32> {
    let mut ids = ids_in_order(engine, &query(filter));
    ids.sort_unstable();
    ids
}

fn ids_in_order(engine: &Engine, query: &Query) -> Vec<i32> {
    let found = engine.find("c", query).expect("find");
    found.iter().map(|document| document.get_i32("_id").expect("an _id")).collect()
}

fn update(engine: &Engine, filter: Document, change: Document) -> slate::Result<slate::Updated> {
    let (query, change) = (query(filter), Update::parse(&change)?);
    engine.write(move |transaction| transaction.update("c", &query, &change, false))
}

fn only(engine: &Engine) -> Document {
    let found = engine.find("c", &Query::default()).expect("find");
    assert_eq!(found.len(), 1);
    Document::try_from(&found[0]).expect("a document")
}

#[test]
fn collections_are_created_before_use() {
    on_every_store(|engine| {
        assert!(matches!(engine.insert("c", &doc! {}), Err(Error::NoCollection(_))));
        engine.create_collection("c").expect("create");
        assert!(matches!(engine.create_collection("c"), Err(Error::CollectionExists(_))));
        engine.insert("c", &doc! {}).expect("insert");
        engine.drop_collection("c").expect("drop");
        assert!(matches!(engine.find("c", &Query::default()), Err(Error::NoCollection(_))));
        engine.create_collection("c").expect("create again");
        assert_eq!(engine.document_count("c").expect("count"), 0);
        assert!(engine.find("c", &Query::default()).expect("find").is_empty());
    });
}

#[test]
fn id_is_generated_first_and_unique() {
    on_every_store(|engine| {
        engine.create_collection("c").expect("create");
        let id = engine.insert("c", &doc! { "a": 1 }).expect("insert");
        assert!(matches!(id, Bson::ObjectId(_)));
        engine.insert("c", &doc! { "a": 1, "_id": 7 }).expect("insert");
        let found = engine.find("c", &query(doc! { "_id": 7 })).expect("find");
        assert_eq!(Document::try_from(&found[0]).expect("a document").keys().next().expect("a key"), "_id");
        // Numbers are equal whatever their type.
        let duplicate = engine.insert("c", &doc! { "_id": 7.0 });
        assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })), "{duplicate:?}");
        assert!(matches!(engine.insert("c", &doc! { "_id": [1] }), Err(Error::Invalid(_))));
        assert_eq!(engine.document_count("c").expect("count"), 2);
    });
}

#[test]
fn sort_skip_and_limit_apply_in_that_order() {
    on_every_store(|engine| {
        with_documents(engine, (0..20).map(|id| doc! { "_id": id, "a": id % 3, "b": -id }));
        let sorted = |sort: Document, skip, limit| {
            let query = Query { skip, limit, ..Query::parse(&doc! {}, &sort, &doc! {}).expect("a query") };
            ids_in_order(engine, &query)
        };
        let expected: Vec<i32> = sorted(doc! { "a": 1, "b": 1 }, 0, None);
        assert_eq!(expected[..3], [18, 15, 12]);
        assert_eq!(sorted(doc! { "a": 1, "b": 1 }, 2, Some(3)), expected[2..5]);
        assert_eq!(sorted(doc! { "a": -1, "b": -1 }, 0, Some(2)), [2, 5]);
        engine.create_index("c", IndexSpec::on(&["a", "b"]).expect("a spec")).expect("index");
        assert_eq!(sorted(doc! { "a": 1, "b": 1 }, 2, Some(3)), expected[2..5]);
        assert_eq!(sorted(doc! { "a": -1, "b": -1 }, 0, Some(2)), [2, 5]);
        assert_eq!(sorted(doc! { "_id": -1 }, 1, Some(2)), [18, 17]);
        assert!(sorted(doc! { "_id": 1 }, 0, Some(0)).is_empty());
    });
}

#[test]
fn projection_includes_or_excludes_nested_fields() {
    on_every_store(|engine| {
        with_documents(
            engine,
            [doc! { "_id": 1, "a": { "b": 1, "c": 2 }, "l": [{ "x": 1, "y": 2 }, 3], "d": 4 }],
        );
        let project = |projection: Document| {
            let query = Query::parse(&doc! {}, &doc! {}, &projection).expect("a query");
            let found = engine.find("c", &query).expect("find");
            Document::try_from(&found[0]).expect("a document")
        };
        assert_eq!(
            project(doc! { "a.b": 1, "l.x": 1 }),
            doc! { "_id": 1, "a": { "b": 1 }, "l": [{ "x": 1 }] }
        );
        assert_eq!(project(doc! { "a.b": 0, "l": 0 }), doc! { "_id": 1, "a": { "c": 2 }, "d": 4 });
        assert_eq!(project(doc! { "d": 1, "_id": 0 }), doc! { "d": 4 });
        assert_eq!(project(doc! { "_id": 1 }), doc! { "_id": 1 });
        assert!(Query::parse(&doc! {}, &doc! {}, &doc! { "a": 1, "b": 0 }).is_err());
    });
}

#[test]
fn distinct_values_unfold_arrays() {
    on_every_store(|engine| {
        with_documents(engine, [doc! { "t": ["b", "a"] }, doc! { "t": "a" }, doc! {}, doc! { "t": 1 }]);
        let path = slate::Path::parse("t").expect("a path");
        let values = engine.distinct("c", &path, &Query::default()).expect("distinct");
        assert_eq!(values, [Bson::Int32(1), Bson::String("a".to_owned()), Bson::String("b".to_owned())]);
    });
}

#[test]
fn malformed_documents_and_oversized_ones_are_refused() {
    on_every_store(|engine| {
        engine.create_collection("c").expect("create");
        let mut deep = doc! {};
        for _ in 0..=slate::document::DEPTH_MAX {
            deep = doc! { "a": deep };
        }
        assert!(matches!(engine.insert("c", &deep), Err(Error::TooLarge(_))));
        let large = doc! { "a": "x".repeat(slate::document::DOCUMENT_LEN_MAX) };
        assert!(matches!(engine.insert("c", &large), Err(Error::TooLarge(_))));
        assert_eq!(engine.document_count("c").expect("count"), 0);
    });
}

#[test]
fn ttl_index_expires_dates_only() {
    on_every_store(|engine| {
        let date = bson::DateTime::from_millis;
        with_documents(
            engine,
            [
                doc! { "_id": 1, "at": date(1_000) },
                doc! { "_id": 2, "at": date(9_000) },
                doc! { "_id": 3, "at": 5 },
                doc! { "_id": 4 },
                doc! { "_id": 5, "at": [date(20_000), date(500)] },
            ],
        );
        let spec = IndexSpec { expire_after_seconds: Some(5), ..IndexSpec::on(&["at"]).expect("a spec") };
        engine.create_index("c", spec).expect("index");
        assert_eq!(engine.expire(date(7_000)).expect("expire"), 2);
        assert_eq!(ids(engine, doc! {}), [2, 3, 4]);
        assert_eq!(engine.expire(date(14_000)).expect("expire"), 1);
        assert_eq!(engine.expire(date(99_000)).expect("expire"), 0);
    });
}
