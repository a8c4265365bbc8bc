//! Choice of plans, seen through `explain`.

use bson::{Document, doc};
use slate::{Engine, IndexSpec, Query};

use super::{on_every_store, query, with_documents};

fn explain(engine: &Engine, query: &Query) -> (String, i64, i64) {
    let explained = engine.explain("c", query).expect("explain");
    let stats = explained.get_document("executionStats").expect("stats");
    (
        explained
            .get_document("queryPlanner")
            .expect("planner")
            .get_document("winningPlan")
            .expect("plan")
            .to_string(),
        stats.get_i64("totalKeysExamined").expect("keys"),
        stats.get_i64("totalDocsExamined").expect("documents"),
    )
}

fn prepare(engine: &Engine) {
    with_documents(engine, (0..200).map(|id| doc! { "_id": id, "common": id % 2, "rare": id % 50, "n": id }));
    for paths in [&["common"][..], &["rare"], &["n"], &["common", "n"]] {
        engine.create_index("c", IndexSpec::on(paths).expect("a spec")).expect("index");
    }
}

#[test]
fn most_selective_index_wins_whatever_the_order_of_declaration() {
    on_every_store(|engine| {
        prepare(engine);
        let (plan, keys, _) = explain(engine, &query(doc! { "common": 1, "rare": 7 }));
        assert!(plan.contains("rare_1"), "{plan}");
        assert_eq!(keys, 4);
        let (plan, keys, _) = explain(engine, &query(doc! { "common": 1, "n": { "$gte": 10, "$lt": 14 } }));
        assert!(plan.contains("common_1_n_1"), "{plan}");
        assert_eq!(keys, 2);
    });
}

#[test]
fn sort_with_limit_walks_an_index() {
    on_every_store(|engine| {
        prepare(engine);
        let sorted = |filter: Document, sort: Document, limit| Query {
            limit,
            ..Query::parse(&filter, &sort, &doc! {}).expect("a query")
        };
        let (plan, keys, _) = explain(engine, &sorted(doc! {}, doc! { "n": -1 }, Some(5)));
        assert!(plan.contains("n_1") && plan.contains("backward") && !plan.contains("SORT"), "{plan}");
        assert_eq!(keys, 5);
        let (plan, keys, _) = explain(engine, &sorted(doc! { "common": 1 }, doc! { "n": 1 }, Some(5)));
        assert!(plan.contains("common_1_n_1") && !plan.contains("SORT"), "{plan}");
        assert_eq!(keys, 5);
        let (plan, ..) = explain(engine, &sorted(doc! {}, doc! { "rare": 1, "n": 1 }, Some(5)));
        assert!(plan.contains("SORT"), "{plan}");
    });
}

#[test]
fn or_uses_indexes_only_if_every_branch_has_one() {
    on_every_store(|engine| {
        prepare(engine);
        let (plan, keys, _) = explain(engine, &query(doc! { "$or": [{ "rare": 3 }, { "n": 1 }] }));
        assert!(plan.contains("OR"), "{plan}");
        assert_eq!(keys, 5);
        let (plan, ..) = explain(engine, &query(doc! { "$or": [{ "rare": 3 }, { "other": 1 }] }));
        assert!(plan.contains("COLLSCAN"), "{plan}");
    });
}

#[test]
fn look_up_by_id_reads_one_document() {
    on_every_store(|engine| {
        prepare(engine);
        let (plan, keys, documents) = explain(engine, &query(doc! { "_id": 5, "common": 1 }));
        assert!(plan.contains("IDSCAN"), "{plan}");
        assert_eq!((keys, documents), (0, 1));
    });
}

#[test]
fn sparse_index_serves_no_query_for_missing_fields() {
    on_every_store(|engine| {
        with_documents(engine, [doc! { "_id": 1, "a": 1 }, doc! { "_id": 2 }]);
        let spec = IndexSpec { sparse: true, ..IndexSpec::on(&["a"]).expect("a spec") };
        engine.create_index("c", spec).expect("index");
        assert_eq!(super::ids(engine, doc! { "a": null }), [2]);
        assert_eq!(super::ids(engine, doc! { "a": 1 }), [1]);
        let sorted =
            Query { limit: Some(9), ..Query::parse(&doc! {}, &doc! { "a": 1 }, &doc! {}).expect("a query") };
        assert_eq!(super::ids_in_order(engine, &sorted), [2, 1]);
    });
}

#[test]
fn large_indexes_are_intersected_before_documents_are_read() {
    on_every_store(|engine| {
        engine.create_collection("c").expect("create");
        let documents: Vec<bson::RawDocumentBuf> = (0..6000)
            .map(|id| doc! { "_id": id, "a": id % 3, "b": if id % 4 == 0 { vec![1, 2] } else { vec![0] }, "n": id })
            .map(|document| bson::RawDocumentBuf::try_from(&document).expect("a document"))
            .collect();
        let inserted = engine.write(move |transaction| transaction.insert_many("c", &documents, true));
        assert!(inserted.expect("insert").failures.is_empty());
        for path in ["a", "b"] {
            engine.create_index("c", IndexSpec::on(&[path]).expect("a spec")).expect("index");
        }
        let both = || doc! { "a": 1, "b": 2 };
        let (plan, keys, documents) = explain(engine, &query(both()));
        assert!(plan.contains("AND_SORTED") && plan.contains("a_1") && plan.contains("b_1"), "{plan}");
        assert_eq!(documents, 500, "only documents that match are read");
        assert!(keys < 4000, "{keys} entries");
        let expected: Vec<i32> = (0..6000).filter(|id| id % 3 == 1 && id % 4 == 0).collect();
        assert_eq!(super::ids_in_order(engine, &query(both())), expected, "in the order of _id");
        assert_eq!(engine.count("c", &query(both())).expect("count"), 500);
        assert_eq!(super::ids(engine, doc! { "a": 1, "b": 2, "n": { "$lt": 50 } }), [4, 16, 28, 40]);
        assert_eq!(super::ids(engine, doc! { "a": 7, "b": 2 }), Vec::<i32>::new());
        let limited = Query { limit: Some(3), skip: 1, ..query(both()) };
        assert_eq!(super::ids_in_order(engine, &limited), [16, 28, 40]);
    });
}

#[test]
fn distinct_skip_scans_an_index_and_keeps_types() {
    on_every_store(|engine| {
        let values =
            [bson::Bson::Int32(2), bson::Bson::Double(1.5), bson::Bson::Int64(7), "x".into(), true.into()];
        with_documents(
            engine,
            (0..100).map(|id| doc! { "_id": id, "v": values[id as usize % 5].clone(), "n": id }),
        );
        engine.insert("c", &doc! { "_id": 100 }).expect("insert");
        let path = slate::Path::parse("v").expect("a path");
        let distinct = |filter: Document| engine.distinct("c", &path, &query(filter)).expect("distinct");
        let filters = [doc! {}, doc! { "v": { "$lt": 5 } }, doc! { "v": { "$gte": 2 }, "n": { "$lt": 50 } }];
        let without: Vec<_> = filters.iter().map(|filter| distinct(filter.clone())).collect();
        assert_eq!(
            without[0],
            [values[1].clone(), values[0].clone(), values[2].clone(), "x".into(), true.into()]
        );
        for spec in [&["v"][..], &["-v", "n"]] {
            let spec = IndexSpec::on(spec).expect("a spec");
            engine.create_index("c", spec.clone()).expect("index");
            let with: Vec<_> = filters.iter().map(|filter| distinct(filter.clone())).collect();
            assert_eq!(with, without, "{}", spec.name);
            engine.insert("c", &doc! { "_id": 101, "v": null }).expect("insert");
            assert_eq!(distinct(doc! {})[0], bson::Bson::Null, "null is a value, a missing field is none");
            let query = query(doc! { "_id": 101 });
            engine.write(move |transaction| transaction.delete("c", &query)).expect("delete");
            engine.drop_index("c", &spec.name).expect("drop");
        }
    });
}
