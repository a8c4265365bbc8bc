//! One schema for every kind.
//!
//! A custom resource's structural OpenAPI schema and a built-in kind's Go type
//! declare the same: fields, types, list keys and
//! defaults. [`Schema`] represents both; pruning, defaulting, validation,
//! strategic merge and server-side apply use it.
//!
//! - [`from_openapi`] reads a CRD's `openAPIV3Schema`;
//! - [`builtin`] resolves our tables of built-in types, each on first use;
//! - CEL rules are compiled and evaluated by the caller;
//!   [`blocks_rules`] tells when schema errors block them.

pub mod builtin;
mod defaults;

mod from_openapi;
mod list_types;

mod prune;

mod correlated_items;
mod formats;
mod metadata;
pub mod structural;
mod typed_convert;
mod typed_decode;
pub mod unstructured;
mod validate;

pub use correlated_items::{CorrelatedItems, is_unchanged};
pub use defaults::{apply_defaults, canonicalize, zero_value};
pub use formats::{is_enforced_format, is_known_format, matches_format};
pub use metadata::{Malformed, coerce_metadata, validate_embedded_resources};
pub use typed_convert::{ConversionError, convert_types};
pub use typed_decode::{TypeMismatch, check_types};
pub use validate::{blocks_rules, rules_skipped_error, validate, validate_nulls, validate_update};

pub use from_openapi::from_openapi;
pub use list_types::validate_list_types;

pub use prune::{Root, prune, unknown_fields};

use orlop_regex::CachedRegex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// JSON type of a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Type {
    /// Unspecified: any type.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    pub fn is_scalar(self) -> bool {
        matches!(self, Self::String | Self::Integer | Self::Number | Self::Boolean)
    }
}

/// Identity of list items (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// None: the list is one value.
    #[default]
    Atomic,
    /// The item itself.
    Set,
    /// The values of these fields of the item.
    Map(Box<[Box<str>]>),
}

/// Ownership granularity of a map (`x-kubernetes-map-type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    #[default]
    Granular,
    Atomic,
}

/// Patch strategy of a field (`x-kubernetes-patch-strategy`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    pub merge: bool,
    pub replace: bool,
    pub retain_keys: bool,
    pub merge_key: Option<Box<str>>,
}

/// A field of an object: its schema and per-field overrides.
#[derive(Clone, Debug)]
pub struct Field {
    pub schema: SchemaRef,
    pub map_type: Option<MapType>,
    pub patch: PatchStrategy,
    pub default: Option<Value>,
    /// Go's view of a field of a built-in type.
    pub go: GoField,
}

/// Go's view of a field of a built-in type, as far as the schema does not say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoField {
    /// The type that errors name, unless the schema says it: `[]v1.PersistentVolumeAccessMode`.
    pub go_type: Option<&'static str>,
    /// The struct that is embedded and has the field, if it is another than the type.
    pub embedded: Option<&'static str>,
    pub unset: Unset,
}

/// Go's encoding of a field that is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unset {
    /// Absent, and so is an empty list or map.
    #[default]
    Absent,
    /// Null: an empty list or map is encoded as such.
    Null,
    /// Absent, and so is a zero: an empty string, `false`, 0.
    Zero,
}

impl Field {
    pub fn schema(&self) -> &Schema {
        self.schema.get()
    }

    pub fn default(&self) -> Option<&Value> {
        self.default.as_ref().or(self.schema().default.as_ref())
    }
}

impl From<Schema> for Field {
    fn from(schema: Schema) -> Self {
        Self {
            schema: schema.into(),
            map_type: None,
            patch: PatchStrategy::default(),
            default: None,
            go: GoField::default(),
        }
    }
}

/// An inline schema, or a built-in type that is resolved on first use.
#[derive(Clone, Debug)]
pub enum SchemaRef {
    Inline(Arc<Schema>),
    Builtin(&'static builtin::TypeEntry),
}

impl SchemaRef {
    pub fn get(&self) -> &Schema {
        match self {
            Self::Inline(schema) => schema,
            Self::Builtin(entry) => entry.schema(),
        }
    }
}

impl From<Schema> for SchemaRef {
    fn from(schema: Schema) -> Self {
        Self::Inline(Arc::new(schema))
    }
}

/// Schema of undeclared properties (`additionalProperties`).
#[derive(Clone, Debug, Default)]
pub enum AdditionalProperties {
    /// Unspecified: nothing, unless the schema has no properties either.
    #[default]
    Unspecified,
    Forbidden,
    Anything,
    Of(SchemaRef),
}

impl AdditionalProperties {
    pub fn schema(&self) -> Option<&Schema> {
        match self {
            Self::Of(schema) => Some(schema.get()),
            _ => None,
        }
    }

    pub fn is_specified(&self) -> bool {
        !matches!(self, Self::Unspecified)
    }
}

/// Value validation keywords: bounds, patterns, `allOf`, `anyOf`, `oneOf`, `not`.
#[derive(Clone, Debug, Default)]
pub struct ValueValidation {
    pub enumeration: Vec<Value>,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<f64>,
    pub length_max: Option<u64>,
    pub length_min: Option<u64>,
    pub items_max: Option<u64>,
    pub items_min: Option<u64>,
    pub unique_items: bool,
    pub properties_max: Option<u64>,
    pub properties_min: Option<u64>,
    pub pattern: Option<Pattern>,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
}

/// A `pattern`, compiled on first use and again after the process-wide cache evicted it.
#[derive(Clone, Debug)]
pub struct Pattern {
    pub text: Box<str>,
    /// Avoids the cache look-up while the pattern is cached.
    compiled: Arc<Mutex<Weak<CachedRegex>>>,
}

impl Pattern {
    pub fn new(text: &str) -> Self {
        Self { text: text.into(), compiled: Arc::default() }
    }

    /// Returns the compiled pattern.
    pub fn regex(&self) -> Result<Arc<CachedRegex>, String> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(regex) = compiled.upgrade() {
            return Ok(regex);
        }
        let regex = orlop_regex::cached(&self.text)?;
        *compiled = Arc::downgrade(&regex);
        Ok(regex)
    }
}

/// A structural schema node.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub kind: Type,
    pub format: Option<Box<str>>,
    pub nullable: bool,
    pub properties: BTreeMap<Box<str>, Field>,
    pub additional_properties: AdditionalProperties,
    pub items: Option<SchemaRef>,
    pub required: Vec<Box<str>>,
    pub list_type: ListType,
    pub map_type: MapType,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub int_or_string: bool,
    /// Server-side apply treats it as a leaf (`RawExtension`).
    pub opaque: bool,
    pub default: Option<Value>,
    pub value_validation: Option<Box<ValueValidation>>,
    /// Go type of a built-in kind, for decoder messages.
    pub go_type: Option<&'static str>,
}

impl Schema {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.properties.get(name)
    }

    pub fn items(&self) -> Option<&Schema> {
        self.items.as_ref().map(SchemaRef::get)
    }

    /// Returns the schema at a dotted field path.
    pub fn at(&self, path: &str) -> Option<&Schema> {
        let mut schema = self;
        for name in path.trim_start_matches('.').split('.').filter(|name| !name.is_empty()) {
            schema = match schema.field(name) {
                Some(field) => field.schema(),
                None => schema.additional_properties.schema()?,
            };
        }
        Some(schema)
    }
}
