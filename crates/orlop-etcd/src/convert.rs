//! Conversions between etcd's messages and the store's types.

use bytes::Bytes;
use orlop_store::{Event, KeyRange, KeyValue};

use crate::pb::mvccpb;

/// Converts a range: an empty end is one key, an end of one zero byte is every key from `key` on.
pub(crate) fn key_range(key: &Bytes, range_end: &Bytes) -> KeyRange {
    match &range_end[..] {
        [] => KeyRange::key(key.clone()),
        [0] => KeyRange::starting_at(key.clone()),
        _ => KeyRange::between(key.clone(), range_end.clone()),
    }
}

/// Converts a version of a key.
pub(crate) fn key_value(kv: KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key,
        value: kv.value,
        create_revision: kv.create_revision,
        mod_revision: kv.revision,
        version: kv.version,
        lease: kv.lease,
    }
}

/// Converts an event, with the previous version if asked for.
pub(crate) fn event(event: &Event, previous: bool) -> mvccpb::Event {
    let previous = event.previous.as_ref().filter(|_| previous);
    mvccpb::Event {
        r#type: i32::from(event.deleted),
        kv: Some(key_value(event.kv.clone())),
        prev_kv: previous.and_then(|previous| previous.kv(&event.kv.key)).map(key_value),
    }
}
