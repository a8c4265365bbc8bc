//! Unique indexes and online builds.

use bson::doc;
use slate::{Error, IndexSpec};

use super::{ids, on_every_store, update, with_documents};

#[test]
fn unique_index_refuses_duplicates_and_keeps_what_was() {
    on_every_store(|engine| {
        with_documents(engine, [doc! { "_id": 1, "a": 1, "b": 1 }, doc! { "_id": 2, "a": 2, "b": 1 }]);
        let unique = |paths: &[&str]| IndexSpec { unique: true, ..IndexSpec::on(paths).expect("a spec") };
        engine.create_index("c", unique(&["a", "b"])).expect("index");
        assert!(matches!(engine.create_index("c", unique(&["b"])), Err(Error::DuplicateKey { .. })));
        assert_eq!(engine.indexes("c").expect("indexes").len(), 2, "a failed build is dropped");
        assert!(matches!(
            engine.insert("c", &doc! { "_id": 3, "a": 1.0, "b": 1 }),
            Err(Error::DuplicateKey { .. })
        ));
        assert!(matches!(
            update(engine, doc! { "_id": 2 }, doc! { "$set": { "a": 1 } }),
            Err(Error::DuplicateKey { .. })
        ));
        assert_eq!(ids(engine, doc! { "a": 2 }), [2]);
        update(engine, doc! { "_id": 1 }, doc! { "$set": { "c": 1 } }).expect("its own key is no duplicate");
        assert_eq!(ids(engine, doc! {}), [1, 2]);
    });
}

#[test]
fn index_is_built_in_steps_while_writes_go_on() {
    on_every_store(|engine| {
        with_documents(engine, []);
        let documents: Vec<_> = (0..2500)
            .map(|id| bson::RawDocumentBuf::try_from(&doc! { "_id": id, "a": id % 10 }).expect("raw"))
            .collect();
        engine.write(move |transaction| transaction.insert_many("c", &documents, true)).expect("insert");
        assert!(engine.start_index("c", IndexSpec::on(&["a"]).expect("a spec")).expect("start"));
        assert!(!engine.build_step("c", "a_1").expect("step"));
        let status = &engine.indexes("c").expect("indexes")[1];
        assert_eq!((status.ready, status.indexed, status.total), (false, 1000, 2500));
        // Behind, at and before the build's position.
        for id in [5, 1500] {
            update(engine, doc! { "_id": id }, doc! { "$set": { "a": 77 } }).expect("update");
        }
        let gone = super::query(doc! { "_id": { "$in": [10, 2000] } });
        engine.write(move |transaction| transaction.delete("c", &gone)).expect("delete");
        engine.insert("c", &doc! { "_id": -1, "a": 77 }).expect("insert");
        assert_eq!(ids(engine, doc! { "a": 77 }), [-1, 5, 1500], "an unfinished index serves no query");
        while engine.build_pending().expect("step") {}
        assert!(engine.indexes("c").expect("indexes")[1].ready);
        assert_eq!(ids(engine, doc! { "a": 77 }), [-1, 5, 1500]);
        // Of 250, two were deleted and one changed.
        assert_eq!(ids(engine, doc! { "a": 0 }).len(), 247);
    });
}

#[test]
fn failed_build_in_the_background_leaves_its_reason_until_it_is_tried_again() {
    on_every_store(|engine| {
        with_documents(engine, [doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 1 }]);
        let unique = || IndexSpec { unique: true, ..IndexSpec::on(&["a"]).expect("a spec") };
        assert!(engine.start_index("c", unique()).expect("start"));
        while engine.build_pending().expect("step") {}
        let failed = engine.failed_builds("c").expect("failures");
        assert!(
            matches!(&failed[..], [(spec, Error::DuplicateKey { .. })] if spec.name == "a_1"),
            "{failed:?}"
        );
        assert_eq!(engine.indexes("c").expect("indexes").len(), 1, "a failed build is dropped");

        update(engine, doc! { "_id": 2 }, doc! { "$set": { "a": 2 } }).expect("update");
        assert!(engine.start_index("c", unique()).expect("start"));
        while engine.build_pending().expect("step") {}
        assert!(engine.failed_builds("c").expect("failures").is_empty());
        assert!(engine.indexes("c").expect("indexes")[1].ready);
    });
}

#[test]
fn index_definitions_are_checked() {
    on_every_store(|engine| {
        with_documents(engine, []);
        let on = |paths: &[&str]| IndexSpec::on(paths).expect("a spec");
        assert!(engine.create_index("c", on(&["a"])).expect("create"));
        assert!(!engine.create_index("c", on(&["a"])).expect("again"), "the same definition is no error");
        let different = IndexSpec { unique: true, ..on(&["a"]) };
        assert!(matches!(engine.create_index("c", different), Err(Error::IndexConflict(_))));
        assert!(engine.create_index("c", on(&["a", "a"])).is_err());
        assert!(matches!(engine.drop_index("c", "nope"), Err(Error::NoIndex(_))));
        engine.drop_index("c", "a_1").expect("drop");
        let parallel = on(&["x", "y"]);
        engine.create_index("c", parallel).expect("create");
        assert!(matches!(engine.insert("c", &doc! { "x": [1, 2], "y": [3, 4] }), Err(Error::Invalid(_))));
        assert!(ids(engine, doc! {}).is_empty());
    });
}
