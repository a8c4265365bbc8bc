//! Point requests: those that read or write one small document by its `_id`, and are answered within microseconds if the
//! store does not wait.

use bson::raw::{RawBsonRef, RawDocument};
use slate_client::protocol::{self, Doc, LookUp, Request};

/// Longest message of a point write, and largest document that one changes, in bytes.
pub(super) const POINT_WRITE_LEN_MAX: usize = 16 << 10;

/// Beginnings of the messages of point writes: a map with one entry.
const POINT_WRITES: [&[u8]; 4] =
    [b"\x81\xa9InsertOne", b"\x81\xa9UpdateOne", b"\x81\xaaReplaceOne", b"\x81\xa9DeleteOne"];

/// A point request.
#[derive(Debug)]
pub(super) enum Point<'a> {
    Ping,
    LookUp { collection: &'a str, id: &'a [u8] },
    Write(Request),
}

impl<'a> Point<'a> {
    /// Decodes a message if it is a point request.
    pub(super) fn decode(message: &'a [u8]) -> Option<Self> {
        if let Some(LookUp::FindById { collection, id }) = LookUp::decode(message) {
            return Some(Self::LookUp { collection, id });
        }
        if message == b"\xa4Ping" {
            return Some(Self::Ping);
        }
        if message.len() > POINT_WRITE_LEN_MAX || !POINT_WRITES.iter().any(|name| message.starts_with(name)) {
            return None;
        }
        let request = protocol::decode::<Request>(message).ok()?;
        let is_point = match &request {
            Request::InsertOne { .. } => true,
            _ => target(&request).is_some(),
        };
        is_point.then_some(Self::Write(request))
    }
}

/// Returns the collection and the `_id` of a write that concerns one document by its `_id`.
pub(super) fn target(request: &Request) -> Option<(&str, RawBsonRef<'_>)> {
    let (collection, filter) = match request {
        Request::UpdateOne(update) | Request::ReplaceOne(update) => (&update.collection, &update.filter),
        Request::DeleteOne { collection, filter } => (collection, filter),
        _ => return None,
    };
    Some((collection, only_id(filter)?))
}

/// Returns the `_id` of a filter that consists of it.
fn only_id(filter: &Doc) -> Option<RawBsonRef<'_>> {
    let mut fields = RawDocument::from_bytes(&filter.0).ok()?.iter();
    let (name, value) = fields.next()?.ok()?;
    let is_only = name.as_str() == "_id" && fields.next().is_none();
    // Documents may be operators; expressions match many.
    let is_value = matches!(
        value,
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::String(_) | RawBsonRef::ObjectId(_)
    );
    (is_only && is_value).then_some(value)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc};
    use proptest::prelude::*;
    use slate_client::protocol::{Find, Update, Value};

    use super::*;

    fn document(document: &bson::Document) -> Doc {
        Doc::new(document).expect("a document")
    }

    fn update(filter: &bson::Document) -> Request {
        Request::UpdateOne(Update {
            collection: "c".to_owned(),
            filter: document(filter),
            update: document(&doc! { "$set": { "a": 1 } }),
            upsert: false,
        })
    }

    fn is_point(request: &Request) -> bool {
        let mut frame = Vec::new();
        protocol::encode_frame(request, &mut frame).expect("a frame");
        Point::decode(&frame[4..]).is_some()
    }

    #[test]
    fn only_small_requests_by_id_are_points() {
        let collection = || "c".to_owned();
        let id = Value::new(Bson::Int32(1)).expect("a value");
        assert!(is_point(&Request::Ping));
        assert!(is_point(&Request::FindById { collection: collection(), id }));
        assert!(is_point(&Request::InsertOne { collection: collection(), document: document(&doc! {}) }));
        assert!(is_point(&update(&doc! { "_id": 1 })));
        assert!(is_point(&Request::DeleteOne {
            collection: collection(),
            filter: document(&doc! { "_id": "a" })
        }));

        assert!(!is_point(&update(&doc! {})));
        assert!(!is_point(&update(&doc! { "_id": 1, "a": 2 })));
        assert!(!is_point(&update(&doc! { "_id": { "$gt": 1 } })));
        let pattern = || bson::raw::CString::try_from("a").expect("a pattern");
        let pattern = bson::Regex { pattern: pattern(), options: pattern() };
        assert!(!is_point(&update(&doc! { "_id": pattern })));
        assert!(!is_point(&update(&doc! { "a": 1 })));
        assert!(!is_point(&update(&doc! { "_id": "a".repeat(POINT_WRITE_LEN_MAX) })));
        assert!(!is_point(&Request::ListCollections));
        assert!(!is_point(&Request::Find(Find::default())));
        assert!(!is_point(&Request::DeleteMany {
            collection: collection(),
            filter: document(&doc! { "_id": 1 })
        }));
    }

    proptest! {
        #[test]
        fn arbitrary_messages_fail_without_panic(
            name in 0..POINT_WRITES.len() + 1,
            rest in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut message = POINT_WRITES.get(name).copied().unwrap_or_default().to_vec();
            message.extend(rest);
            let _ = Point::decode(&message);
        }
    }
}
