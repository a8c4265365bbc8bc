//! Messages of port 9600.
//!
//! A message is a four-byte big-endian length and that many bytes of MessagePack. One request has one
//! response; responses come in the order of requests, so a client may send many before it reads. A document
//! is a MessagePack `bin` that holds BSON; a single value is a document whose field `v` holds it.

use crate::point_read;
use bson::{Bson, Document, RawBson, RawDocumentBuf, cstr};
use serde::{Deserialize, Serialize};

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Largest frame that is accepted unless configured otherwise.
pub const FRAME_LEN_MAX: usize = 48 << 20;

/// A BSON document as bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Doc(#[serde(with = "serde_bytes")] pub Vec<u8>);

impl Doc {
    /// Encodes a document.
    pub fn new(document: &Document) -> Result<Self, bson::error::Error> {
        document.to_vec().map(Self)
    }

    /// Decodes the document.
    pub fn decode(&self) -> Result<Document, bson::error::Error> {
        if self.0.is_empty() { Ok(Document::new()) } else { Document::from_reader(self.0.as_slice()) }
    }
}

impl From<RawDocumentBuf> for Doc {
    fn from(document: RawDocumentBuf) -> Self {
        Self(document.into_bytes())
    }
}

/// A BSON value: a document with the field `v`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Value(pub Doc);

impl Value {
    /// Encodes a value.
    pub fn new(value: Bson) -> Result<Self, bson::error::Error> {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("v"), RawBson::try_from(value)?);
        Ok(Self(document.into()))
    }

    /// Decodes the value.
    pub fn decode(&self) -> Result<Bson, bson::error::Error> {
        Ok(self.0.decode()?.remove("v").unwrap_or(Bson::Null))
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Opens a session. Required first if the server has a token.
    Hello {
        /// Version of the protocol.
        version: u32,
        /// The server's token.
        #[serde(default)]
        token: Option<String>,
    },
    /// Asks for nothing.
    Ping,
    /// Creates a collection with its indexes.
    CreateCollection {
        /// Name.
        collection: String,
        /// Indexes to create with it.
        #[serde(default)]
        indexes: Vec<IndexDefinition>,
    },
    /// Lists collections.
    ListCollections,
    /// Drops a collection.
    DropCollection {
        /// Name.
        collection: String,
    },
    /// Creates an index.
    CreateIndex {
        /// Collection.
        collection: String,
        /// Definition.
        index: IndexDefinition,
        /// Answer before the index is built.
        #[serde(default)]
        background: bool,
    },
    /// Drops an index.
    DropIndex {
        /// Collection.
        collection: String,
        /// Name of the index.
        index: String,
    },
    /// Lists the indexes of a collection.
    ListIndexes {
        /// Collection.
        collection: String,
    },
    /// Inserts one document.
    InsertOne {
        /// Collection.
        collection: String,
        /// Document.
        document: Doc,
    },
    /// Inserts documents, all or none.
    InsertMany {
        /// Collection.
        collection: String,
        /// Documents.
        documents: Vec<Doc>,
    },
    /// Finds documents. Large results continue with `GetMore`.
    Find(Find),
    /// Finds the first document.
    FindOne(Find),
    /// Finds a document by `_id`.
    FindById {
        /// Collection.
        collection: String,
        /// `_id`.
        id: Value,
    },
    /// Continues a cursor.
    GetMore {
        /// Cursor.
        cursor: u64,
        /// Most documents of the next batch; 0 is the server's choice.
        #[serde(default)]
        batch_size: u32,
    },
    /// Closes a cursor.
    CloseCursor {
        /// Cursor.
        cursor: u64,
    },
    /// Updates the first match.
    UpdateOne(Update),
    /// Updates every match.
    UpdateMany(Update),
    /// Replaces the first match.
    ReplaceOne(Update),
    /// Deletes the first match.
    DeleteOne {
        /// Collection.
        collection: String,
        /// Filter.
        filter: Doc,
    },
    /// Deletes every match.
    DeleteMany {
        /// Collection.
        collection: String,
        /// Filter.
        filter: Doc,
    },
    /// Counts matches.
    Count {
        /// Collection.
        collection: String,
        /// Filter.
        #[serde(default)]
        filter: Doc,
    },
    /// Returns the distinct values of a field.
    Distinct {
        /// Collection.
        collection: String,
        /// Path of the field.
        field: String,
        /// Filter.
        #[serde(default)]
        filter: Doc,
    },
    /// Inserts documents or replaces those with the same `_id`.
    UpsertMany {
        /// Collection.
        collection: String,
        /// Documents.
        documents: Vec<Doc>,
    },
    /// Inserts documents or sets their fields in those with the same `_id`.
    MergeMany {
        /// Collection.
        collection: String,
        /// Documents.
        documents: Vec<Doc>,
    },
    /// Runs writes atomically.
    Transaction {
        /// Writes, in order.
        requests: Vec<Request>,
    },
    /// Explains a query.
    Explain(Find),
}

/// [`Request::FindById`], borrowed. Look-ups come by the thousand, so they copy nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LookUp<'a> {
    /// Finds a document by `_id`.
    FindById {
        /// Collection.
        collection: &'a str,
        /// `_id`, as a [`Value`].
        #[serde(with = "serde_bytes")]
        id: &'a [u8],
    },
}

impl<'a> LookUp<'a> {
    /// Decodes a look-up, if the message is one.
    pub fn decode(message: &'a [u8]) -> Option<Self> {
        if let Some((collection, id)) = point_read::decode_look_up(message) {
            return Some(Self::FindById { collection, id });
        }
        if Self::is(message) { decode(message).ok() } else { None }
    }

    /// Appends the look-up with its length in front.
    pub fn encode_frame(&self, frame: &mut Vec<u8>) {
        let Self::FindById { collection, id } = self;
        point_read::encode_look_up(collection, id, frame);
    }

    /// Returns true if a message begins as a look-up does.
    fn is(message: &[u8]) -> bool {
        message.starts_with(point_read::LOOK_UP)
    }
}

/// [`Response::Document`], borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Found<'a> {
    /// One document, if found.
    Document {
        /// The document.
        #[serde(with = "serde_bytes")]
        document: Option<&'a [u8]>,
    },
}

impl Found<'_> {
    /// Appends the response with its length in front.
    pub fn encode_frame(&self, frame: &mut Vec<u8>) {
        let Self::Document { document } = self;
        point_read::encode_found(*document, frame);
    }
}

/// A query.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Find {
    /// Collection.
    pub collection: String,
    /// Filter.
    #[serde(default)]
    pub filter: Doc,
    /// Order: path to 1 or -1.
    #[serde(default)]
    pub sort: Doc,
    /// Matches to leave out.
    #[serde(default)]
    pub skip: u64,
    /// Most matches.
    #[serde(default)]
    pub take: Option<u64>,
    /// Fields: path to 1, or path to 0.
    #[serde(default)]
    pub projection: Doc,
    /// Most documents of the first batch; 0 is the server's choice.
    #[serde(default)]
    pub batch_size: u32,
    /// Time limit; 0 is the server's.
    #[serde(default)]
    pub timeout_ms: u64,
}

/// An update.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// Collection.
    pub collection: String,
    /// Filter.
    #[serde(default)]
    pub filter: Doc,
    /// Operators, or the replacement.
    pub update: Doc,
    /// Insert if nothing matches.
    #[serde(default)]
    pub upsert: bool,
}

/// Definition of an index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDefinition {
    /// Name; derived from the fields if empty.
    #[serde(default)]
    pub name: String,
    /// Paths; a leading `-` means descending.
    pub fields: Vec<String>,
    /// Forbid duplicates.
    #[serde(default)]
    pub unique: bool,
    /// Leave out documents without the fields.
    #[serde(default)]
    pub sparse: bool,
    /// Delete documents this long after the date in the field.
    #[serde(default)]
    pub expire_after_seconds: Option<u32>,
}

impl IndexDefinition {
    /// Defines a plain index on one field.
    pub fn on(field: &str) -> Self {
        Self { fields: vec![field.to_owned()], ..Self::default() }
    }
}

/// A response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// Done.
    Ok,
    /// Answer to `Hello`.
    Hello {
        /// Version of the protocol.
        version: u32,
        /// Id of the server's start: a new one means that a memory store is empty.
        boot_id: String,
        /// Store of the server.
        store: String,
    },
    /// `_id`s of inserted documents.
    Inserted {
        /// In the order of the documents.
        ids: Vec<Value>,
    },
    /// A batch of documents.
    Documents {
        /// Documents.
        documents: Vec<Doc>,
        /// Cursor that has more; 0 is none.
        cursor: u64,
    },
    /// One document, if found.
    Document {
        /// The document.
        document: Option<Doc>,
    },
    /// Result of an update.
    Updated {
        /// Matches.
        matched: u64,
        /// Changed documents.
        modified: u64,
        /// `_id` of an upserted document.
        upserted: Option<Value>,
    },
    /// Result of an upsert or merge of many.
    Upserted {
        /// New documents.
        inserted: u64,
        /// Changed documents.
        modified: u64,
    },
    /// Result of a deletion.
    Deleted {
        /// Deleted documents.
        count: u64,
    },
    /// Result of a count.
    Count {
        /// Matches.
        count: u64,
    },
    /// Distinct values.
    Values {
        /// Values, in order.
        values: Vec<Value>,
    },
    /// Collections.
    Collections {
        /// By name.
        collections: Vec<CollectionInfo>,
    },
    /// Indexes of a collection.
    Indexes {
        /// In order of creation.
        indexes: Vec<IndexInfo>,
    },
    /// Results of a transaction.
    Results {
        /// In the order of the requests.
        results: Vec<Response>,
    },
    /// Plan and work of a query.
    Explained {
        /// Explanation.
        explanation: Doc,
    },
    /// Failure.
    Error {
        /// Machine-readable reason.
        code: ErrorCode,
        /// For people.
        message: String,
    },
}

/// A collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionInfo {
    /// Name.
    pub name: String,
    /// Number of documents.
    pub documents: u64,
    /// Number of indexes, without that on `_id`.
    pub indexes: u32,
}

/// An index and its build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexInfo {
    /// Definition.
    pub definition: IndexDefinition,
    /// Queries use it.
    pub ready: bool,
    /// Documents indexed so far.
    pub indexed: u64,
    /// Documents in the collection.
    pub total: u64,
    /// Reason why the build in the background failed. The index does not exist then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Reason of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorCode {
    /// The request is malformed.
    Invalid,
    /// No such collection, index or cursor.
    NotFound,
    /// The collection or index exists.
    AlreadyExists,
    /// A unique index has the key.
    DuplicateKey,
    /// A limit is exceeded.
    TooLarge,
    /// The time limit is exceeded.
    TimedOut,
    /// No valid token was presented.
    Unauthenticated,
    /// The server is busy or shutting down.
    Unavailable,
    /// The store failed.
    Internal,
}

/// Encodes a message with its length in front.
pub fn encode_frame<T: Serialize>(message: &T, frame: &mut Vec<u8>) -> Result<(), rmp_serde::encode::Error> {
    let from = frame.len();
    frame.extend_from_slice(&[0; 4]);
    rmp_serde::encode::write_named(frame, message)?;
    let length = u32::try_from(frame.len() - from - 4).unwrap_or(u32::MAX);
    frame[from..from + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Decodes a message without its length.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, rmp_serde::decode::Error> {
    rmp_serde::from_slice(bytes)
}

/// Decodes a response without its length.
pub fn decode_response(message: &[u8]) -> Result<Response, rmp_serde::decode::Error> {
    match point_read::decode_found(message) {
        Some(document) => Ok(Response::Document { document: document.map(|bytes| Doc(bytes.to_vec())) }),
        None => decode(message),
    }
}

/// Length of the frame that a buffer begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameHead {
    /// More bytes are needed.
    Incomplete,
    /// A whole frame, with this many bytes after the length.
    Complete(usize),
    /// The frame exceeds the limit.
    TooLarge(usize),
}

/// Looks at the beginning of a buffer.
pub fn frame_head(buffer: &[u8], max: usize) -> FrameHead {
    let Some(length) = buffer.first_chunk::<4>() else { return FrameHead::Incomplete };
    let length = u32::from_be_bytes(*length) as usize;
    if length > max {
        FrameHead::TooLarge(length)
    } else if buffer.len() < 4 + length {
        FrameHead::Incomplete
    } else {
        FrameHead::Complete(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(value: &impl Serialize) -> Vec<u8> {
        let mut frame = Vec::new();
        encode_frame(value, &mut frame).expect("a frame");
        frame.split_off(4)
    }

    #[test]
    fn borrowed_messages_are_encoded_as_owned_ones() {
        let id = Value::new(Bson::String("x".to_owned())).expect("a value");
        let look_up = LookUp::FindById { collection: "accounts", id: &id.0.0 };
        let request = Request::FindById { collection: "accounts".to_owned(), id: id.clone() };
        assert_eq!(message(&look_up), message(&request));
        assert_eq!(LookUp::decode(&message(&request)), Some(look_up));
        assert_eq!(LookUp::decode(&message(&Request::Ping)), None);
        for document in [None, Some(vec![5, 0, 0, 0, 0])] {
            let found = Found::Document { document: document.as_deref() };
            let response = Response::Document { document: document.clone().map(Doc) };
            assert_eq!(message(&found), message(&response));
        }
    }

    #[test]
    fn point_reads_are_encoded_and_decoded_as_serde_does() {
        let lengths = [0, 1, 31, 32, 255, 256, 65_535, 65_536];
        for length in lengths {
            let (name, bytes) = ("c".repeat(length), vec![7; length]);
            let look_up = LookUp::FindById { collection: &name, id: &bytes };
            let mut frame = Vec::new();
            look_up.encode_frame(&mut frame);
            assert_eq!(frame[4..], message(&look_up), "{length}");
            assert_eq!(frame_head(&frame, usize::MAX), FrameHead::Complete(frame.len() - 4));
            assert_eq!(LookUp::decode(&frame[4..]), Some(look_up), "{length}");
            let found = Found::Document { document: Some(&bytes) };
            let mut frame = Vec::new();
            found.encode_frame(&mut frame);
            assert_eq!(frame[4..], message(&found), "{length}");
            let response = Response::Document { document: Some(Doc(bytes)) };
            assert_eq!(decode_response(&frame[4..]).expect("a response"), response);
        }
        let none = message(&Found::Document { document: None });
        assert_eq!(decode_response(&none).expect("a response"), Response::Document { document: None });
        let mut long = message(&Found::Document { document: Some(&[1]) });
        long.pop();
        assert!(decode_response(&long).is_err() && decode_response(&[]).is_err());
    }
}
