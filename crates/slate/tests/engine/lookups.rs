//! Prepared look-ups by `_id`.

use std::sync::atomic::{AtomicBool, Ordering};

use bson::{Bson, RawDocumentBuf, doc, oid::ObjectId};
use slate::{Engine, Error, IndexSpec};

use super::{on_every_store, update, with_documents};

/// Creates `c` with the document 1, in one transaction.
fn create_with_document(engine: &Engine) {
    let document = RawDocumentBuf::try_from(&doc! { "_id": 1 }).expect("raw");
    engine
        .write(move |transaction| {
            transaction.create_collection("c")?;
            transaction.insert("c", &document)
        })
        .expect("create");
}

#[test]
fn prepared_lookup_reads_the_last_commit() {
    on_every_store(|engine| {
        let oid = ObjectId::from_bytes([7; 12]);
        with_documents(engine, [doc! { "_id": 1, "v": 0 }, doc! { "_id": oid, "v": 1 }, doc! { "_id": "s" }]);
        let mut lookup = engine.prepare_lookup("c").expect("prepare");
        let mut value = |id: Bson| {
            lookup
                .get(&id, |document| document.get_i32("v").ok())
                .expect("get")
                .map(Option::unwrap_or_default)
        };
        assert_eq!(value(Bson::Int32(1)), Some(0));
        assert_eq!(value(Bson::Double(1.0)), Some(0));
        assert_eq!(value(Bson::ObjectId(oid)), Some(1));
        assert_eq!(value(Bson::String("s".to_owned())), Some(0));
        assert_eq!(value(Bson::Int32(2)), None);
        update(engine, doc! { "_id": 1 }, doc! { "$set": { "v": 5 } }).expect("update");
        assert_eq!(value(Bson::Int32(1)), Some(5));
        engine.create_index("c", IndexSpec::on(&["v"]).expect("a spec")).expect("index");
        assert_eq!(value(Bson::Int32(1)), Some(5));
        engine.drop_collection("c").expect("drop");
        let dropped = lookup.get(&Bson::Int32(1), |_| ());
        assert!(matches!(dropped, Err(Error::NoCollection(_))), "{dropped:?}");
        create_with_document(engine);
        assert!(lookup.get(&Bson::Int32(1), |_| ()).expect("get").is_some());
        assert!(matches!(engine.prepare_lookup("nowhere"), Err(Error::NoCollection(_))));
    });
}

#[test]
fn prepared_lookup_never_sees_half_of_a_catalog_change() {
    on_every_store(|engine| {
        create_with_document(engine);
        let done = AtomicBool::new(false);
        let mut lookup = engine.prepare_lookup("c").expect("prepare");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // The collection has the document whenever it exists.
                    match lookup.get(&Bson::Int32(1), |_| ()) {
                        Ok(Some(())) | Err(Error::NoCollection(_)) => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
            for _ in 0..200 {
                engine.drop_collection("c").expect("drop");
                create_with_document(engine);
            }
            done.store(true, Ordering::Relaxed);
            reader.join().expect("the reader");
        });
    });
}
