//! Between the protocol's types and the engine's.

use std::time::{Duration, Instant};

use bson::{Bson, Document, RawDocumentBuf, raw::RawBsonRef};
use slate::{Error, Filter, IndexSpec, IndexStatus, Query, Result};
use slate_client::protocol::{Doc, ErrorCode, Find, IndexDefinition, IndexInfo, Response, Value};

/// Database that Slate's own collections belong to, as MongoDB's clients see it.
pub(crate) const DATABASE: &str = "slate";

/// Returns the engine's name of a collection.
pub(super) fn namespace(collection: &str) -> String {
    [DATABASE, ".", collection].concat()
}

/// Returns true if this is the engine's name of a collection.
pub(super) fn is_namespace(name: &str, collection: &str) -> bool {
    name.strip_prefix(DATABASE).and_then(|rest| rest.strip_prefix('.')) == Some(collection)
}

pub(super) fn document(doc: &Doc) -> Result<Document> {
    if doc.0.is_empty() {
        return Ok(Document::new());
    }
    slate::document::parse(&doc.0)?;
    doc.decode().map_err(|error| Error::invalid(error.to_string()))
}

/// Views a value without decoding it.
pub(super) fn raw_value(value: &[u8]) -> Result<RawBsonRef<'_>> {
    let document = slate::document::parse(value)?;
    Ok(document
        .into_iter()
        .flatten()
        .find(|(name, _)| name.as_str() == "v")
        .map_or(RawBsonRef::Null, |(_, value)| value))
}

pub(super) fn raw(doc: Doc) -> Result<RawDocumentBuf> {
    RawDocumentBuf::from_bytes(doc.0).map_err(|error| Error::invalid(format!("not BSON: {error}")))
}

pub(super) fn raws(docs: Vec<Doc>) -> Result<Vec<RawDocumentBuf>> {
    docs.into_iter().map(raw).collect()
}

pub(super) fn value(value: Bson) -> Result<Value> {
    Value::new(value).map_err(|error| Error::invalid(error.to_string()))
}

pub(super) fn values(list: Vec<Bson>) -> Result<Vec<Value>> {
    list.into_iter().map(value).collect()
}

pub(super) fn filter(doc: &Doc) -> Result<Query> {
    Ok(Query::new(Filter::parse(&document(doc)?)?))
}

pub(super) fn query(find: &Find, timeout: Duration) -> Result<Query> {
    let timeout = match find.timeout_ms {
        0 => timeout,
        millis => timeout.min(Duration::from_millis(millis)),
    };
    let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    Ok(Query {
        skip: size(find.skip),
        limit: find.take.map(size),
        deadline: Some(Instant::now() + timeout),
        ..Query::parse(&document(&find.filter)?, &document(&find.sort)?, &document(&find.projection)?)?
    })
}

pub(super) fn index_spec(definition: &IndexDefinition) -> Result<IndexSpec> {
    let fields: Vec<&str> = definition.fields.iter().map(String::as_str).collect();
    let spec = IndexSpec::on(&fields)?;
    Ok(IndexSpec {
        name: if definition.name.is_empty() { spec.name } else { definition.name.clone() },
        unique: definition.unique,
        sparse: definition.sparse,
        expire_after_seconds: definition.expire_after_seconds,
        ..spec
    })
}

pub(super) fn index_info(status: IndexStatus) -> Option<IndexInfo> {
    Some(IndexInfo {
        definition: definition(status.spec?),
        ready: status.ready,
        indexed: status.indexed,
        total: status.total,
        error: None,
    })
}

/// Describes an index whose build failed.
pub(super) fn failed_index((spec, error): (IndexSpec, Error)) -> IndexInfo {
    IndexInfo {
        definition: definition(spec),
        ready: false,
        indexed: 0,
        total: 0,
        error: Some(error.to_string()),
    }
}

fn definition(spec: IndexSpec) -> IndexDefinition {
    let field = |field: &slate::IndexField| match field.descending {
        true => format!("-{}", field.path),
        false => field.path.to_string(),
    };
    IndexDefinition {
        fields: spec.fields.iter().map(field).collect(),
        name: spec.name,
        unique: spec.unique,
        sparse: spec.sparse,
        expire_after_seconds: spec.expire_after_seconds,
    }
}

pub(super) fn error(error: &Error) -> Response {
    let code = match error {
        Error::Invalid(_) => ErrorCode::Invalid,
        Error::NoCollection(_) | Error::NoIndex(_) => ErrorCode::NotFound,
        Error::CollectionExists(_) | Error::IndexConflict(_) => ErrorCode::AlreadyExists,
        Error::DuplicateKey { .. } => ErrorCode::DuplicateKey,
        Error::TooLarge(_) => ErrorCode::TooLarge,
        Error::TimedOut => ErrorCode::TimedOut,
        Error::Cancelled => ErrorCode::Unavailable,
        _ => ErrorCode::Internal,
    };
    // The engine's names carry the database, which this protocol does not show.
    let message = error.to_string().replace(&format!("\"{DATABASE}."), "\"");
    Response::Error { code, message }
}
