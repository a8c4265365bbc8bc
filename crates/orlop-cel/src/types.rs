//! The types of expressions.
//!
//! A [`Type`] is cheap to clone: everything nested is shared. Objects are described by a [`Schema`] and compared by
//! name; messages (`Object{…}`, `JSONPatch{…}`) likewise. [`Type::Dyn`] switches static checking off for a value;
//! [`Type::Param`] is a type parameter of overload signatures, or one under inference.

use std::fmt;
use std::sync::Arc;

use crate::schema::{Schema, Shape};

/// The type of a value or expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Known only at run time.
    Dyn,
    /// Type of an expression with an error.
    Error,
    /// The type of `null`.
    Null,
    /// `bool`
    Bool,
    /// 64-bit signed integer
    Int,
    /// 64-bit unsigned integer
    Uint,
    /// 64-bit float
    Double,
    /// Unicode text
    String,
    /// Octets
    Bytes,
    /// A point in time
    Timestamp,
    /// A span of time
    Duration,
    /// `list(T)`
    List(Arc<Type>),
    /// `map(K, V)`
    Map(Arc<Type>, Arc<Type>),
    /// `optional_type(T)`
    Optional(Arc<Type>),
    /// The type of a type; the parameter is what `type(x)` knows of `x`.
    Type(Option<Arc<Type>>),
    /// An object described by a schema.
    Object(Schema),
    /// A message that expressions can construct.
    Message(Arc<MessageType>),
    /// A type with functions but no structure, such as `kubernetes.Quantity`.
    Opaque(&'static str),
    /// A type to be found.
    Param(Param),
}

/// A placeholder for a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// In the signature of an overload.
    Named(&'static str),
    /// Made by the checker for one use of an overload.
    Variable(u32),
}

/// A message that expressions can construct.
#[derive(Debug)]
pub struct MessageType {
    /// Its full name.
    pub name: String,
    /// Its fields; `None` for messages that take any field with any value.
    pub fields: Option<Vec<(String, Type)>>,
}

impl PartialEq for MessageType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Schema {
    /// Returns the type of expressions that select a value of this schema.
    pub fn to_type(&self) -> Type {
        match &self.node.shape {
            Shape::Bool => Type::Bool,
            Shape::Int => Type::Int,
            Shape::Double => Type::Double,
            Shape::String => Type::String,
            Shape::Bytes => Type::Bytes,
            Shape::Duration => Type::Duration,
            Shape::Date | Shape::DateTime => Type::Timestamp,
            Shape::IntOrString | Shape::Dyn => Type::Dyn,
            Shape::List { items, .. } => Type::list(items.to_type()),
            Shape::Map { values } => Type::map(Type::String, values.to_type()),
            Shape::Object { .. } => Type::Object(self.clone()),
        }
    }
}

impl Type {
    /// `list(item)`
    pub fn list(item: Type) -> Self {
        Self::List(Arc::new(item))
    }

    /// `map(key, value)`
    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// `optional_type(value)`
    pub fn optional(value: Type) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// The type parameter of this name.
    pub const fn param(name: &'static str) -> Self {
        Self::Param(Param::Named(name))
    }

    /// `type(inner)`
    pub(crate) fn of(inner: Type) -> Self {
        Self::Type(Some(Arc::new(inner)))
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Returns whether this is an optional type.
    pub(crate) fn is_optional(&self) -> bool {
        matches!(self, Self::Optional(_))
    }

    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Double | Self::Duration | Self::Int | Self::Timestamp | Self::Uint => true,
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// The name that the type has as a value: `int`, `list`, `google.protobuf.Timestamp`.
    pub fn runtime_name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Error => "!error!",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Object(schema) => schema.name(),
            Self::Message(message) => &message.name,
            Self::Opaque(name) => name,
            Self::Param(Param::Named(name)) => name,
            Self::Param(Param::Variable(_)) => "dyn",
        }
    }

    /// Returns the type that an identifier denotes: `int`, `google.protobuf.Duration`, …
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Self::Bool,
            "bytes" => Self::Bytes,
            "double" => Self::Double,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "string" => Self::String,
            "null_type" => Self::Null,
            "type" => Self::Type(None),
            "list" => Self::list(Self::Dyn),
            "map" => Self::map(Self::Dyn, Self::Dyn),
            "optional_type" => Self::optional(Self::Dyn),
            "google.protobuf.Timestamp" => Self::Timestamp,
            "google.protobuf.Duration" => Self::Duration,
            "net.IP" => Self::Opaque("net.IP"),
            "net.CIDR" => Self::Opaque("net.CIDR"),
            _ => return None,
        })
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            Self::Type(Some(inner)) => write!(f, "type({inner})"),
            Self::Param(Param::Variable(number)) => write!(f, "_var{number}"),
            other => f.write_str(other.runtime_name()),
        }
    }
}
