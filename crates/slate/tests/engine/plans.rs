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
