//! Aggregation pipelines: computed fields, joins, and the limits on stages.

use bson::{Bson, Document, bson, doc};
use slate::{Engine, Error, Pipeline};

use super::{on_every_store, with_documents};

fn run(engine: &Engine, stages: Bson) -> slate::Result<Vec<Document>> {
    let pipeline = Pipeline::parse(stages.as_array().expect("a list of stages"))?;
    let documents = pipeline.run(engine, "c", "db", None)?;
    Ok(documents.iter().map(|document| Document::try_from(document).expect("a document")).collect())
}

#[test]
fn nested_specifications_are_dotted_paths() {
    on_every_store(|engine| {
        with_documents(engine, [doc! { "_id": 1, "a": { "b": 1, "c": 2 }, "l": [{ "x": 1 }, 5], "n": 3 }]);
        let one = |stage: Bson| run(engine, bson!([stage])).expect("documents").remove(0);
        assert_eq!(one(bson!({ "$project": { "a": { "b": 1 } } })), doc! { "_id": 1, "a": { "b": 1 } });
        assert_eq!(
            one(bson!({ "$project": { "_id": 0, "a": { "d": "$n" }, "n": 1 } })),
            doc! { "n": 3, "a": { "d": 3 } }
        );
        assert_eq!(
            one(bson!({ "$addFields": { "a": { "b": 7 }, "n": { "m": 1 }, "l": { "y": 2 } } })),
            doc! {
                "_id": 1, "a": { "b": 7, "c": 2 }, "l": [{ "x": 1, "y": 2 }, { "y": 2 }], "n": { "m": 1 },
            }
        );
    });
}

#[test]
fn unwound_documents_keep_the_order_of_fields() {
    on_every_store(|engine| {
        with_documents(engine, [doc! { "_id": 1, "l": [1, [2]], "z": 1 }, doc! { "_id": 2, "l": [] }]);
        let unwound = run(engine, bson!([{ "$unwind": { "path": "$l", "includeArrayIndex": "i" } }]));
        let expected =
            [doc! { "_id": 1, "l": 1, "z": 1, "i": 0_i64 }, doc! { "_id": 1, "l": [2], "z": 1, "i": 1_i64 }];
        assert_eq!(unwound.expect("documents"), expected);
    });
}

#[test]
fn stages_that_multiply_documents_are_refused_above_their_limit() {
    let engine = &Engine::in_memory();
    let text = "x".repeat(1 << 20);
    let list: Vec<i32> = (0..400).collect();
    with_documents(engine, (0..20).map(|id| doc! { "_id": id, "k": 1, "text": &text, "l": &list }));
    engine.create_collection("db.other").expect("create");
    for id in 0..20 {
        engine.insert("db.other", &doc! { "_id": id, "k": 1, "text": &text }).expect("insert");
    }
    let lookup = bson!({ "$lookup": { "from": "other", "localField": "k", "foreignField": "k", "as": "o" } });
    let twice = bson!({ "$addFields": { "text": { "$concat": ["$text", "$text"] } } });
    let parts: Vec<Bson> = (0..20).map(|_| "$$ROOT".into()).collect();
    let pushes: Document = (0..20).map(|n| (format!("f{n}"), bson!({ "$push": "$$ROOT" }))).collect();
    let group = doc! { "_id": null }.into_iter().chain(pushes).collect::<Document>();
    for (name, stages) in [
        ("unwind", bson!([{ "$unwind": "$l" }])),
        ("lookup of one document", bson!([lookup.clone()])),
        ("lookup of all", bson!([{ "$limit": 1 }, { "$project": { "k": 1 } }, lookup])),
        ("concat", bson!([twice.clone(), twice.clone(), twice.clone(), twice])),
        ("array", bson!([{ "$limit": 1 }, { "$addFields": { "all": parts.clone() } }])),
        ("replaceRoot", bson!([{ "$limit": 1 }, { "$replaceRoot": { "newRoot": { "all": parts } } }])),
        ("group", bson!([{ "$group": group }])),
    ] {
        let refused = run(engine, stages);
        assert!(matches!(refused, Err(Error::TooLarge(_))), "{name}: {:?}", refused.map(|found| found.len()));
    }
    let small = bson!([{ "$project": { "l": 1 } }, { "$unwind": "$l" }, { "$count": "n" }]);
    assert_eq!(run(engine, small).expect("documents"), [doc! { "n": 8000 }]);
}
