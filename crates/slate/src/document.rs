//! Validation and normal form of documents that enter the engine.

use bson::{
    RawDocumentBuf,
    oid::ObjectId,
    raw::{RawBsonRef, RawDocument, cstr},
};

use crate::{
    error::{Error, Result},
    key,
};

/// Largest document, in bytes.
pub const DOCUMENT_LEN_MAX: usize = 16 << 20;
/// Deepest nesting of a document.
pub const DEPTH_MAX: usize = 100;

/// Longest encoded `_id`, in bytes.
const ID_LEN_MAX: usize = 8 << 10;

/// Parses bytes as a document, at every level.
pub fn parse(bytes: &[u8]) -> Result<&RawDocument> {
    let document =
        RawDocument::from_bytes(bytes).map_err(|error| Error::invalid(format!("not BSON: {error}")))?;
    validate(document)?;
    Ok(document)
}

/// Validates size, depth and every element of a document.
pub fn validate(document: &RawDocument) -> Result<()> {
    if document.as_bytes().len() > DOCUMENT_LEN_MAX {
        return Err(Error::TooLarge(format!(
            "a document has at most {DOCUMENT_LEN_MAX} bytes, this one {}",
            document.as_bytes().len()
        )));
    }
    validate_level(document, 0)
}

fn validate_level(document: &RawDocument, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(Error::TooLarge(format!("a document is nested at most {DEPTH_MAX} levels deep")));
    }
    for element in document {
        let (_, value) = element.map_err(|error| Error::invalid(format!("not BSON: {error}")))?;
        match value {
            RawBsonRef::Document(inner) => validate_level(inner, depth + 1)?,
            RawBsonRef::Array(inner) => {
                let inner = RawDocument::from_bytes(inner.as_bytes())
                    .map_err(|error| Error::invalid(format!("not BSON: {error}")))?;
                validate_level(inner, depth + 1)?;
            }
            RawBsonRef::JavaScriptCodeWithScope(code) => validate_level(code.scope, depth + 1)?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns the document with its `_id` first, generated if it has none, and the encoded `_id`.
pub(crate) fn normalize(document: &RawDocument) -> Result<(std::borrow::Cow<'_, RawDocument>, Vec<u8>)> {
    validate(document)?;
    let mut first = true;
    let mut id = None;
    for element in document.iter_elements() {
        let element = element.map_err(|error| Error::invalid(format!("not BSON: {error}")))?;
        let name = element.key().as_str();
        if name == "_id" {
            let value = element.value().map_err(|error| Error::invalid(error.to_string()))?;
            if first {
                return Ok((document.into(), id_key(value)?));
            }
            id = Some(value);
            break;
        }
        first = false;
    }
    let mut normal = RawDocumentBuf::new();
    let key = match id {
        Some(id) => {
            normal.append(cstr!("_id"), id);
            id_key(id)?
        }
        None => {
            let id = ObjectId::new();
            normal.append(cstr!("_id"), id);
            key::encode(RawBsonRef::ObjectId(id))
        }
    };
    for (name, value) in document.iter().flatten() {
        if name.as_str() != "_id" {
            normal.append(name, value);
        }
    }
    Ok((normal.into(), key))
}

/// Encodes an `_id`.
pub(crate) fn id_key(id: RawBsonRef<'_>) -> Result<Vec<u8>> {
    let mut key = Vec::with_capacity(16);
    encode_id(&mut key, id)?;
    Ok(key)
}

/// Encodes an `_id` into an empty buffer.
pub(crate) fn encode_id(key: &mut Vec<u8>, id: RawBsonRef<'_>) -> Result<()> {
    match id {
        RawBsonRef::Array(_) | RawBsonRef::RegularExpression(_) | RawBsonRef::Undefined => {
            Err(Error::invalid("the '_id' value cannot be an array, a regex or undefined"))
        }
        _ => {
            key::encode_to(key, id);
            if key.len() > ID_LEN_MAX {
                return Err(Error::TooLarge(format!("an _id has at most {ID_LEN_MAX} bytes")));
            }
            Ok(())
        }
    }
}
