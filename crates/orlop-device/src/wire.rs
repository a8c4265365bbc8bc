//! Message envelopes shared by all kinds.
//!
//! `CreateGpuRequest` and `CreateNicRequest` differ only in the message in field 1, so one envelope decodes both and
//! leaves that field as bytes. At start-up [`crate::shape`] validates each kind's `.proto` against these envelopes; it
//! converts specs and statuses to JSON and back.

use std::collections::{BTreeMap, HashMap};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use orlop_api::{object_meta, time::Time};
use orlop_device_client::api::{DeleteOptions, GetOptions, ListMeta, ListOptions, ObjectMeta, TypeMeta};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, key_len},
};
use prost_types::Timestamp;
use serde_json::{Map, Value};

/// Any kind's object.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Object {
    #[prost(message, optional, tag = "1")]
    pub(crate) type_meta: Option<TypeMeta>,
    #[prost(message, optional, tag = "2")]
    pub(crate) object_meta: Option<ObjectMeta>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(crate) spec: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(crate) status: Option<Bytes>,
}

/// An encoded object of any kind, for calls that return one.
#[derive(Debug)]
pub(crate) struct EncodedObject(pub(crate) Bytes);

impl Message for EncodedObject {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.0);
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    /// Never decoded.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        prost::encoding::skip_field(wire_type, tag, buffer, context)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// `GetXRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) namespace: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) opts: Option<GetOptions>,
}

/// `GetXResponse`, with an encoded object, as in the responses below.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetResponse {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) object: Option<Bytes>,
}

/// `ListXsRequest` and `WatchXsRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListRequest {
    #[prost(string, optional, tag = "1")]
    pub(crate) namespace: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub(crate) opts: Option<ListOptions>,
}

/// `XList`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct List {
    #[prost(message, optional, tag = "1")]
    pub(crate) type_meta: Option<TypeMeta>,
    #[prost(message, optional, tag = "2")]
    pub(crate) list_meta: Option<ListMeta>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(crate) items: Vec<Bytes>,
}

impl List {
    const ITEMS: u32 = 3;
    /// Field number in `ListXsResponse`.
    const LIST: u32 = 1;

    /// Encodes the gRPC message of a `ListXsResponse` up to its items. Returns the items, which follow in order.
    pub(crate) fn begin(mut self, message: &mut BytesMut) -> Vec<Bytes> {
        let list_length = self.encoded_len();
        let length = key_len(Self::LIST) + encoded_len_varint(list_length as u64) + list_length;
        let items = std::mem::take(&mut self.items);
        message.put_u8(0);
        // Bounded by the largest message sent.
        message.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        encode_key(Self::LIST, WireType::LengthDelimited, message);
        encode_varint(list_length as u64, message);
        self.encode_raw(message);
        items
    }

    pub(crate) fn put_item(message: &mut BytesMut, item: &Bytes) {
        prost::encoding::bytes::encode(Self::ITEMS, item, message);
    }
}

/// `ListXsResponse`.
#[cfg(test)]
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) list: Option<List>,
}

/// `WatchXsResponse`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(string, tag = "1")]
    pub(crate) r#type: String,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) object: Option<Bytes>,
}

/// `CreateXRequest`, `UpdateXRequest` and `UpdateXStatusRequest`; their options are empty.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WriteRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) object: Option<Object>,
}

/// `PatchXRequest`; its options are empty.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PatchRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) namespace: Option<String>,
    #[prost(string, tag = "3")]
    pub(crate) patch_type: String,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) data: Bytes,
    #[prost(string, repeated, tag = "6")]
    pub(crate) subresources: Vec<String>,
}

/// `DeleteXRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) namespace: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) opts: Option<DeleteOptions>,
}

/// Converts metadata, and adds the resource version.
pub(crate) fn to_meta(meta: &Map<String, Value>, version: String) -> ObjectMeta {
    let text = |key| Some(object_meta::text(meta, key)).filter(|text| !text.is_empty()).map(str::to_owned);
    let created = meta.get("creationTimestamp").and_then(Value::as_str).and_then(Time::parse);
    ObjectMeta {
        name: text("name"),
        resource_version: Some(version),
        namespace: text("namespace"),
        uid: text("uid"),
        generation: meta.get("generation").and_then(Value::as_i64),
        creation_timestamp: created.map(timestamp),
        labels: strings(meta.get("labels")),
        annotations: strings(meta.get("annotations")),
    }
}

/// Converts a map of strings, sorted by key. `None` for an empty one.
pub(crate) fn string_map(map: &HashMap<String, String>) -> Option<Value> {
    if map.is_empty() {
        return None;
    }
    let sorted: BTreeMap<_, _> = map.iter().collect();
    Some(sorted.into_iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect())
}

fn strings(map: Option<&Value>) -> HashMap<String, String> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.unix_seconds, nanos: i32::try_from(time.nanoseconds).unwrap_or_default() }
}
