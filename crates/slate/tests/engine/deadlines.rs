//! Operations end at their deadline, and leave no trace.

use std::time::Instant;

use bson::{Document, RawDocumentBuf, bson, doc};
use slate::{Engine, Error, IndexSpec, Path, Pipeline, Query, Result, Update};

use super::{on_every_store, query};

fn late(filter: Document, sort: Document) -> Query {
    let parsed = Query::parse(&filter, &sort, &doc! {}).expect("a query");
    Query { deadline: Some(Instant::now()), ..parsed }
}

fn run_all(engine: &Engine) -> Vec<(&'static str, Result<()>)> {
    let (all, path) = (|| late(doc! {}, doc! {}), Path::parse("n").expect("a path"));
    let change = Update::parse(&doc! { "$inc": { "m": 1 } }).expect("an update");
    let pipeline = bson!([{ "$match": { "m": 1 } }, { "$group": { "_id": null } }]);
    let pipeline = Pipeline::parse(pipeline.as_array().expect("stages")).expect("a pipeline");
    let (updated, deleted) = (all(), all());
    vec![
        ("find", engine.find("c", &all()).map(drop)),
        ("find by index", engine.find("c", &late(doc! { "n": { "$gte": 0 } }, doc! {})).map(drop)),
        ("sort", engine.find("c", &late(doc! {}, doc! { "m": 1 })).map(drop)),
        ("count", engine.count("c", &late(doc! { "m": 1 }, doc! {})).map(drop)),
        ("count by index", engine.count("c", &late(doc! { "n": { "$gte": 0 } }, doc! {})).map(drop)),
        ("distinct by index", engine.distinct("c", &path, &all()).map(drop)),
        ("explain", engine.explain("c", &all()).map(drop)),
        ("update", engine.write(move |t| t.update("c", &updated, &change, false)).map(drop)),
        ("delete", engine.write(move |t| t.delete("c", &deleted)).map(drop)),
        ("aggregate", pipeline.run(engine, "c", "db", Some(Instant::now())).map(drop)),
    ]
}

#[test]
fn operations_past_their_deadline_time_out_and_change_nothing() {
    on_every_store(|engine| {
        engine.create_collection("c").expect("create");
        let documents: Vec<_> = (0..500)
            .map(|id| RawDocumentBuf::try_from(&doc! { "_id": id, "n": id, "m": 1 }).expect("raw"))
            .collect();
        engine.write(move |transaction| transaction.insert_many("c", &documents, true)).expect("insert");
        engine.create_index("c", IndexSpec::on(&["n"]).expect("a spec")).expect("index");
        for (name, result) in run_all(engine) {
            assert!(matches!(result, Err(Error::TimedOut)), "{name}: {result:?}");
        }
        assert_eq!(engine.count("c", &query(doc! { "m": 1 })).expect("count"), 500);
    });
}
