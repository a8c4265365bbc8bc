//! Order-preserving key encoding of BSON values.
//!
//! `encode(a) < encode(b)` as bytes exactly when `compare(a, b)` is `Less`, over all types, in MongoDB's
//! order of types. Every encoding is self-delimiting, so encodings can be concatenated into compound keys,
//! and complemented for descending fields.

mod compare;
mod decode;
mod encode;
mod number;

pub use compare::{compare, same_class};
pub use decode::{decode, skip};
pub use encode::{complement, encode, encode_to, prefix_successor};

/// Class of a value: the first byte of its encoding. Values of different classes order by it.
pub(crate) mod class {
    /// Ends an array or a document. Lower than every class.
    pub(crate) const END: u8 = 0x00;
    pub(crate) const MIN_KEY: u8 = 0x02;
    pub(crate) const UNDEFINED: u8 = 0x05;
    pub(crate) const NULL: u8 = 0x0a;
    pub(crate) const NUMBER: u8 = 0x14;
    pub(crate) const STRING: u8 = 0x1e;
    pub(crate) const DOCUMENT: u8 = 0x28;
    pub(crate) const ARRAY: u8 = 0x32;
    pub(crate) const BINARY: u8 = 0x3c;
    pub(crate) const OBJECT_ID: u8 = 0x46;
    pub(crate) const BOOLEAN: u8 = 0x50;
    pub(crate) const DATE: u8 = 0x5a;
    pub(crate) const TIMESTAMP: u8 = 0x64;
    pub(crate) const REGEX: u8 = 0x6e;
    pub(crate) const DB_POINTER: u8 = 0x78;
    pub(crate) const CODE: u8 = 0x82;
    pub(crate) const CODE_WITH_SCOPE: u8 = 0x8c;
    pub(crate) const MAX_KEY: u8 = 0xf0;
}

/// Returns true if a number of any type is NaN.
pub(crate) fn is_nan(value: bson::raw::RawBsonRef<'_>) -> bool {
    number::Number::of(value).is_some_and(number::Number::is_nan)
}

pub(crate) fn class_of(value: bson::raw::RawBsonRef<'_>) -> u8 {
    use bson::raw::RawBsonRef as V;
    match value {
        V::MinKey => class::MIN_KEY,
        V::Undefined => class::UNDEFINED,
        V::Null => class::NULL,
        V::Double(_) | V::Int32(_) | V::Int64(_) | V::Decimal128(_) => class::NUMBER,
        V::String(_) | V::Symbol(_) => class::STRING,
        V::Document(_) => class::DOCUMENT,
        V::Array(_) => class::ARRAY,
        V::Binary(_) => class::BINARY,
        V::ObjectId(_) => class::OBJECT_ID,
        V::Boolean(_) => class::BOOLEAN,
        V::DateTime(_) => class::DATE,
        V::Timestamp(_) => class::TIMESTAMP,
        V::RegularExpression(_) => class::REGEX,
        V::DbPointer(_) => class::DB_POINTER,
        V::JavaScriptCode(_) => class::CODE,
        V::JavaScriptCodeWithScope(_) => class::CODE_WITH_SCOPE,
        V::MaxKey => class::MAX_KEY,
    }
}
