//! CEL values.
//!
//! A [`Value`] borrows wherever it can. Strings, lists and objects of the document are not copied: fields are read
//! lazily and typed by their schema. Only values that an expression constructs are allocated, and shared by
//! reference count. Reading JSON can fail (`"abc"` where the schema says `date-time`) with an evaluation error.

mod compare;
mod equality;
mod fingerprint;
mod json;
mod list;
mod map;
mod text;

use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

pub(crate) use compare::compare;
pub(crate) use equality::equals;
pub(crate) use fingerprint::{Fingerprints, fingerprint, fingerprints};
pub use list::List;
pub use map::{Key, Map};
pub use text::Text;

use crate::error::EvalError;
use crate::library::opaque::Opaque;
use crate::schema::Schema;
use crate::time::{Duration, Timestamp};
use crate::types::{MessageType, Type};

/// The result of an expression or of a part of one.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// 64-bit signed integer
    Int(i64),
    /// 64-bit unsigned integer
    Uint(u64),
    /// 64-bit float
    Double(f64),
    /// Text
    String(Text<'a>),
    /// Octets
    Bytes(Arc<[u8]>),
    /// A point in time
    Timestamp(Timestamp),
    /// A span of time
    Duration(Duration),
    /// A list
    List(List<'a>),
    /// A map or an object
    Map(Map<'a>),
    /// A type
    Type(Type),
    /// `optional.of(x)` or `optional.none()`
    Optional(Option<Arc<Value<'a>>>),
    /// A message constructed by the expression
    Message(Arc<MessageValue<'a>>),
    /// A quantity, address, version, …
    Opaque(Opaque),
}

/// A message constructed by an expression.
#[derive(Debug)]
pub struct MessageValue<'a> {
    /// Its type.
    pub message: Arc<MessageType>,
    /// The fields that were set, in the order written.
    pub fields: Vec<(&'a str, Value<'a>)>,
}

impl<'a> MessageValue<'a> {
    /// The value of a field, if it was set.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }
}

impl<'a> Value<'a> {
    /// JSON as a value, read lazily as `schema` says; without a schema, as the JSON itself says.
    pub fn from_json(json: &'a Json, schema: Option<&'a Schema>) -> Result<Self, EvalError> {
        json::read(json, schema)
    }

    /// A string that is not part of the document.
    pub fn string(text: impl AsRef<str>) -> Self {
        Self::String(Text::from(text.as_ref()))
    }

    /// A string borrowed from the document or the program.
    pub fn borrowed(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    /// Bytes.
    pub fn bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::Bytes(bytes.into())
    }

    /// A list of values.
    pub fn list(values: Vec<Value<'a>>) -> Self {
        Self::List(List::from(values))
    }

    /// `optional.of(value)`
    pub fn some(value: Value<'a>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// `optional.none()`
    pub const fn none() -> Self {
        Self::Optional(None)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a bool.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The type of the value, as `type(value)` gives it.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Timestamp(_) => Type::Timestamp,
            Self::Duration(_) => Type::Duration,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(map) => map.object_type().unwrap_or_else(|| Type::map(Type::Dyn, Type::Dyn)),
            Self::Type(_) => Type::Type(None),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Message(message) => Type::Message(message.message.clone()),
            Self::Opaque(opaque) => Type::Opaque(opaque.type_name()),
        }
    }

    /// The value as JSON. Timestamps and durations become strings, bytes base64; types, optionals without a place
    /// and values such as quantities have no JSON.
    pub fn to_json(&self) -> Result<Json, EvalError> {
        json::write(self)
    }

    /// Returns whether the value is assignable to a parameter type. Elements are not checked.
    pub(crate) fn fits(&self, ty: &Type) -> bool {
        match (ty, self) {
            (Type::Dyn | Type::Param(_), _)
            | (Type::Null, Self::Null)
            | (Type::Bool, Self::Bool(_))
            | (Type::Int, Self::Int(_))
            | (Type::Uint, Self::Uint(_))
            | (Type::Double, Self::Double(_))
            | (Type::String, Self::String(_))
            | (Type::Bytes, Self::Bytes(_))
            | (Type::Timestamp, Self::Timestamp(_))
            | (Type::Duration, Self::Duration(_))
            | (Type::List(_), Self::List(_))
            | (Type::Map(..) | Type::Object(_), Self::Map(_))
            | (Type::Type(_), Self::Type(_))
            | (Type::Optional(_), Self::Optional(_))
            | (Type::Message(_), Self::Message(_)) => true,
            (Type::Opaque(name), Self::Opaque(opaque)) => opaque.type_name() == *name,
            _ => false,
        }
    }

    /// Returns whether this is a zero value for `optional.ofNonZeroValue`.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Timestamp(time) => time.is_zero(),
            Self::Duration(duration) => duration.nanos == 0,
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Optional(value) => value.is_none(),
            Self::Message(message) => message.fields.is_empty(),
            Self::Type(_) | Self::Opaque(_) => false,
        }
    }

    /// Memory that the value itself holds, not counting what it shares or borrows.
    pub(crate) fn owned_bytes(&self) -> u64 {
        match self {
            Self::String(Text::Shared(text)) => text.len() as u64,
            Self::List(List::Values(_)) | Self::Bytes(_) => self.bytes_if_copied(),
            Self::Map(Map::Values(entries)) => (entries.len() * 2 * size_of::<Self>()) as u64,
            _ => 0,
        }
    }

    /// Memory that a copy of a string, of bytes or of a list would hold.
    pub(crate) fn bytes_if_copied(&self) -> u64 {
        match self {
            Self::String(text) => text.len() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => (list.len() * size_of::<Self>()) as u64,
            _ => 0,
        }
    }

    /// Returns the size for cost tracking: characters, bytes, elements or entries; 1 for everything else.
    pub(crate) fn cost_size(&self) -> u64 {
        match self {
            Self::String(text) => text.chars().count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Optional(Some(value)) => value.cost_size(),
            Self::Opaque(opaque) => opaque.cost_size(),
            _ => 1,
        }
    }
}

/// Formats a value for error messages and map keys.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::Double(value) => f.write_str(&crate::number::double_to_string(*value)),
            Self::String(text) => f.write_str(text),
            Self::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Timestamp(time) => write!(f, "{time}"),
            Self::Duration(duration) => write!(f, "{duration}"),
            Self::Type(ty) => f.write_str(ty.runtime_name()),
            other => f.write_str(other.type_of().runtime_name()),
        }
    }
}

// Values are moved often, so they stay small.
const _: () = assert!(size_of::<Value<'_>>() <= 40);

impl PartialEq for Value<'_> {
    /// CEL's equality; values that cannot be compared are not equal.
    fn eq(&self, other: &Self) -> bool {
        equals(self, other).unwrap_or(false)
    }
}
