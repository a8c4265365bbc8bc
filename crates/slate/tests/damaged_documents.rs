//! Damaged BSON: it is refused, or everything that the engine does with documents copes with it.

use bson::{Bson, RawDocumentBuf, doc, raw::RawDocument};
use proptest::prelude::*;
use slate::{Engine, Filter, IndexSpec, Projection, Query, Sort, Update, document, key};

/// A document with every type.
fn original() -> Vec<u8> {
    let all = doc! {
        "_id": 7,
        "double": -1.5,
        "text": "zero \0 inside",
        "nested": { "a": [1, { "b": 2_i64 }, []], "c": {} },
        "binary": Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0, 1, 255] }),
        "id": bson::oid::ObjectId::from_bytes([3; 12]),
        "flag": true,
        "date": bson::DateTime::from_millis(-1),
        "none": Bson::Null,
        "regex": Bson::RegularExpression(bson::Regex { pattern: "^a".try_into().expect("a pattern"), options: "i".try_into().expect("options") }),
        "code": Bson::JavaScriptCode("f()".to_owned()),
        "scoped": Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code: "f".to_owned(), scope: doc! { "x": 1 } }),
        "stamp": Bson::Timestamp(bson::Timestamp { time: 1, increment: 2 }),
        "decimal": Bson::Decimal128("1.5".parse().expect("a number")),
        "least": Bson::MinKey,
        "most": Bson::MaxKey,
    };
    all.to_vec().expect("BSON")
}

/// Does with a document what the engine does with documents.
fn use_document(raw: &RawDocument) {
    for (_, value) in raw.into_iter().flatten() {
        let encoded = key::encode(value);
        let (decoded, rest) = key::decode(&encoded).expect("a key that was just encoded");
        assert!(rest.is_empty(), "{decoded}");
        assert!(key::compare(value, value).is_eq());
    }
    let filter =
        Filter::parse(&doc! { "nested.a.b": { "$gte": 1 }, "text": { "$regex": "z" } }).expect("a filter");
    let _ = filter.matches(raw);
    let sort = Sort::parse(&doc! { "nested.a": 1, "double": -1 }).expect("a sort");
    let _ = sort.key(raw);
    let projection = Projection::parse(&doc! { "nested.a": 1 }).expect("a projection").expect("one");
    let _ = projection.apply(raw);
    let engine = Engine::in_memory();
    engine.create_collection("c").expect("create");
    for field in ["nested.a", "text", "double"] {
        engine.create_index("c", IndexSpec::on(&[field]).expect("a spec")).expect("index");
    }
    let document = raw.to_owned();
    // Refused or stored, but consistent.
    let stored = engine.write(move |transaction| transaction.insert("c", &document)).is_ok();
    let update =
        Update::parse(&doc! { "$set": { "nested.d": 1 }, "$inc": { "double": 1 } }).expect("an update");
    let _ = engine.write(move |transaction| transaction.update("c", &Query::default(), &update, false));
    let validation = engine.validate("c").expect("validate");
    assert_eq!((validation.documents, validation.faults), (u64::from(stored), Vec::new()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn damaged_documents_are_refused_or_harmless(
        damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..6),
        cut in proptest::option::weighted(0.2, any::<u16>()),
    ) {
        let mut bytes = original();
        for (place, byte) in damage {
            let place = usize::from(place) % bytes.len();
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(usize::from(cut) % bytes.len());
        }
        if let Ok(document) = document::parse(&bytes) {
            use_document(document);
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = document::parse(&bytes);
        let _ = RawDocumentBuf::from_bytes(bytes);
    }
}

#[test]
fn undamaged_document_passes() {
    use_document(document::parse(&original()).expect("BSON"));
}
