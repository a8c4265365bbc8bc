//! Every filter operator, with and without an index.

use bson::{Document, doc};
use slate::{Filter, IndexSpec};

use super::{ids, on_every_store, with_documents};

fn documents() -> Vec<Document> {
    vec![
        doc! { "_id": 1, "n": 1, "s": "alpha", "t": ["x", "y"], "i": [{ "k": 1, "v": 5 }, { "k": 2, "v": 6 }] },
        doc! { "_id": 2, "n": 2.5, "s": "beta", "t": ["y"], "i": [{ "k": 1, "v": 6 }] },
        doc! { "_id": 3, "n": 3_i64, "s": "alphabet", "t": [], "d": { "e": { "f": 1 } } },
        doc! { "_id": 4, "n": null, "s": 7, "t": "x" },
        doc! { "_id": 5, "d": { "e": 1 } },
        doc! { "_id": 6, "n": [1, 10], "s": "Gamma" },
    ]
}

#[test]
fn filters_match_the_same_with_and_without_indexes() {
    let cases: Vec<(Document, Vec<i32>)> = vec![
        (doc! {}, vec![1, 2, 3, 4, 5, 6]),
        (doc! { "n": 1 }, vec![1, 6]),
        (doc! { "n": { "$eq": 3 } }, vec![3]),
        (doc! { "n": null }, vec![4, 5]),
        (doc! { "n": { "$ne": null } }, vec![1, 2, 3, 6]),
        (doc! { "n": { "$gt": 1 } }, vec![2, 3, 6]),
        (doc! { "n": { "$gte": 1, "$lt": 3 } }, vec![1, 2, 6]),
        // Different elements may satisfy the two.
        (doc! { "n": { "$gt": 5, "$lt": 2 } }, vec![6]),
        (doc! { "n": { "$elemMatch": { "$gt": 5, "$lt": 20 } } }, vec![6]),
        (doc! { "n": { "$lte": 2.5 } }, vec![1, 2, 6]),
        (doc! { "n": { "$in": [1, 3.0] } }, vec![1, 3, 6]),
        (doc! { "n": { "$in": [] } }, vec![]),
        (doc! { "n": { "$in": [null, 2.5] } }, vec![2, 4, 5]),
        (doc! { "n": { "$nin": [1, null] } }, vec![2, 3]),
        (doc! { "n": { "$exists": true } }, vec![1, 2, 3, 4, 6]),
        (doc! { "n": { "$exists": false } }, vec![5]),
        (doc! { "n": { "$not": { "$gt": 2 } } }, vec![1, 4, 5]),
        (doc! { "n": { "$type": "number" } }, vec![1, 2, 3, 6]),
        (doc! { "n": { "$mod": [2, 1] } }, vec![1, 3, 6]),
        (doc! { "n": [1, 10] }, vec![6]),
        (doc! { "s": { "$regex": "^alpha" } }, vec![1, 3]),
        (doc! { "s": { "$regex": "^GAM", "$options": "i" } }, vec![6]),
        (doc! { "s": { "$regex": "^al?phab" } }, vec![3]),
        (doc! { "s": { "$regex": r"^\w+bet\b" } }, vec![3]),
        (doc! { "s": { "$gt": "alpha", "$lt": "b" } }, vec![3]),
        (doc! { "s": { "$lt": 10 } }, vec![4]),
        (doc! { "t": "x" }, vec![1, 4]),
        (doc! { "t.[]": "y" }, vec![1, 2]),
        (doc! { "t": { "$all": ["x", "y"] } }, vec![1]),
        (doc! { "t": { "$size": 0 } }, vec![3]),
        (doc! { "t": { "$size": 1 } }, vec![2]),
        (doc! { "t": [] }, vec![3]),
        (doc! { "t.0": "y" }, vec![2]),
        (doc! { "i.k": 1 }, vec![1, 2]),
        (doc! { "i.[].v": { "$gt": 5 } }, vec![1, 2]),
        (doc! { "i": { "$elemMatch": { "k": 1, "v": 6 } } }, vec![2]),
        (doc! { "i.k": 1, "i.v": 6 }, vec![1, 2]),
        (doc! { "d.e.f": 1 }, vec![3]),
        (doc! { "d": { "e": 1 } }, vec![5]),
        (doc! { "d.e": { "f": 1 } }, vec![3]),
        (doc! { "$and": [{ "n": 1 }, { "t": "x" }] }, vec![1]),
        (doc! { "$or": [{ "n": 3 }, { "s": 7 }] }, vec![3, 4]),
        (doc! { "$or": [{ "n": 1 }, { "t": "y" }, { "n": 1 }] }, vec![1, 2, 6]),
        (doc! { "$nor": [{ "n": 1 }, { "t": "y" }] }, vec![3, 4, 5]),
        (doc! { "_id": { "$gt": 2, "$lte": 4 } }, vec![3, 4]),
        (doc! { "_id": { "$in": [6, 1, 99] } }, vec![1, 6]),
        (doc! { "_id": 3, "n": 1 }, vec![]),
    ];
    on_every_store(|engine| {
        with_documents(engine, documents());
        for (filter, expected) in &cases {
            assert_eq!(ids(engine, filter.clone()), *expected, "without index: {filter}");
        }
        for paths in [&["n"][..], &["s"], &["-t"], &["i.[].k", "i.v"], &["d.e", "n"], &["s", "-n"]] {
            engine.create_index("c", IndexSpec::on(paths).expect("a spec")).expect("index");
            for (filter, expected) in &cases {
                assert_eq!(ids(engine, filter.clone()), *expected, "with {paths:?}: {filter}");
                let count = engine.count("c", &super::query(filter.clone())).expect("count");
                assert_eq!(count, expected.len() as u64, "count with {paths:?}: {filter}");
            }
        }
    });
}

#[test]
fn malformed_filters_are_refused() {
    for filter in [
        doc! { "$what": 1 },
        doc! { "a": { "$what": 1 } },
        doc! { "$or": [] },
        doc! { "$and": [1] },
        doc! { "a": { "$in": 1 } },
        doc! { "a": { "$regex": "(" } },
        doc! { "a": { "$size": -1 } },
        doc! { "a": { "$mod": [0, 1] } },
        doc! { "a..b": 1 },
        doc! { "": 1 },
    ] {
        assert!(Filter::parse(&filter).is_err(), "{filter}");
    }
    let mut deep = doc! { "a": 1 };
    for _ in 0..100 {
        deep = doc! { "$or": [deep] };
    }
    assert!(Filter::parse(&deep).is_err());
}
