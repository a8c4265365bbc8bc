//! Typed values: the schema's view of a JSON value.
//!
//! A node is a scalar, a list or a map. If the schema allows several, or there is
//! none, the type is deduced from the value: maps are granular, lists atomic.

use crate::go_text;
use crate::managed_fields::{OrderedValue, PathElement};
use crate::schema::{AdditionalProperties, ListType, MapType, Schema, Type, builtin};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

/// Type of a node.
#[derive(Clone, Copy, Debug)]
pub enum TypeRef<'a> {
    Schema {
        schema: &'a Schema,
        /// Overrides the schema's map type.
        map_type: Option<MapType>,
        /// Unknown fields are preserved here and below.
        preserve: bool,
        /// apiVersion, kind and metadata are fields without being declared.
        resource: bool,
    },
    /// No schema: maps granular, lists atomic.
    Deduced,
    /// One leaf, whatever is inside.
    Opaque,
}

/// A resolved node (SMD's Atom).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Atom<'a> {
    Scalar(ScalarKind),
    List(ListAtom<'a>),
    Map(MapAtom<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    Numeric,
    String,
    Boolean,
    Untyped,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ListAtom<'a> {
    pub(crate) kind: &'a ListType,
    pub(crate) item: TypeRef<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MapAtom<'a> {
    pub(crate) atomic: bool,
    of: TypeRef<'a>,
}

/// Type of a map entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// `None` if the schema does not declare the key.
    pub(crate) of: Option<TypeRef<'a>>,
    /// A field of the schema, rather than an entry of a map.
    pub(crate) declared: bool,
}

static ATOMIC: ListType = ListType::Atomic;
static TEXT: LazyLock<Schema> = LazyLock::new(|| Schema { kind: Type::String, ..Schema::default() });

impl<'a> TypeRef<'a> {
    /// Returns the type of a resource.
    pub fn resource(schema: &'a Schema) -> Self {
        Self::Schema { schema, map_type: None, preserve: schema.preserve_unknown, resource: true }
    }

    fn nested(schema: &'a Schema, map_type: Option<MapType>, preserve: bool) -> Self {
        if schema.opaque {
            return Self::Opaque;
        }
        let preserve = preserve || schema.preserve_unknown;
        Self::Schema { schema, map_type, preserve, resource: schema.embedded_resource }
    }

    fn list(self) -> Option<ListAtom<'a>> {
        match self {
            Self::Schema { schema, preserve, .. }
                if matches!(schema.kind, Type::Array | Type::Any) && !schema.int_or_string =>
            {
                let item = schema.items().map_or(Self::Opaque, |items| Self::nested(items, None, preserve));
                Some(ListAtom { kind: &schema.list_type, item })
            }
            Self::Schema { .. } => None,
            Self::Deduced | Self::Opaque => Some(ListAtom { kind: &ATOMIC, item: Self::Opaque }),
        }
    }

    fn map(self) -> Option<MapAtom<'a>> {
        match self {
            Self::Schema { schema, map_type, .. }
                if matches!(schema.kind, Type::Object | Type::Any) && !schema.int_or_string =>
            {
                let atomic = map_type.unwrap_or(schema.map_type) == MapType::Atomic;
                Some(MapAtom { atomic, of: self })
            }
            Self::Schema { .. } => None,
            Self::Deduced => Some(MapAtom { atomic: false, of: self }),
            Self::Opaque => Some(MapAtom { atomic: true, of: self }),
        }
    }

    fn scalar(self) -> Option<ScalarKind> {
        let Self::Schema { schema, .. } = self else { return Some(ScalarKind::Untyped) };
        match schema.kind {
            Type::Object | Type::Array => None,
            Type::Integer | Type::Number => Some(ScalarKind::Numeric),
            Type::Boolean => Some(ScalarKind::Boolean),
            Type::String if matches!(schema.format.as_deref(), None | Some("byte")) => {
                Some(ScalarKind::String)
            }
            Type::String | Type::Any => Some(ScalarKind::Untyped),
        }
    }

    /// Resolves the atom for a value: the one that fits, else (null, or another type) map before scalar before list.
    pub(crate) fn atom(self, value: Option<&Value>) -> Atom<'a> {
        let fitting = match value {
            Some(Value::Object(_)) => self.map().map(Atom::Map),
            Some(Value::Array(_)) => self.list().map(Atom::List),
            Some(Value::Null) | None => None,
            Some(_) => self.scalar().map(Atom::Scalar),
        };
        fitting
            .or_else(|| self.map().map(Atom::Map))
            .or_else(|| self.scalar().map(Atom::Scalar))
            .or_else(|| self.list().map(Atom::List))
            .unwrap_or(Atom::Scalar(ScalarKind::Untyped))
    }

    /// Returns whether this is a map without declared fields.
    pub(crate) fn is_free_form(self) -> bool {
        match self {
            Self::Schema { schema, preserve, resource, .. } => {
                !resource
                    && schema.properties.is_empty()
                    && match schema.additional_properties {
                        AdditionalProperties::Unspecified => preserve || schema.properties.is_empty(),
                        AdditionalProperties::Anything => true,
                        _ => false,
                    }
            }
            Self::Deduced => true,
            Self::Opaque => false,
        }
    }
}

impl<'a> MapAtom<'a> {
    pub(crate) fn entry(self, key: &str) -> Entry<'a> {
        let (schema, preserve, resource) = match self.of {
            TypeRef::Schema { schema, preserve, resource, .. } => (schema, preserve, resource),
            other => return Entry { of: Some(other), declared: false },
        };
        if resource {
            match key {
                "metadata" => {
                    return Entry {
                        of: Some(TypeRef::nested(builtin::object_meta(), None, false)),
                        declared: true,
                    };
                }
                "apiVersion" | "kind" => {
                    return Entry { of: Some(TypeRef::nested(&TEXT, None, false)), declared: true };
                }
                _ => {}
            }
        }
        if let Some(field) = schema.field(key) {
            return Entry {
                of: Some(TypeRef::nested(field.schema(), field.map_type, preserve)),
                declared: true,
            };
        }
        let of = match &schema.additional_properties {
            AdditionalProperties::Of(inner) => Some(TypeRef::nested(inner.get(), None, preserve)),
            AdditionalProperties::Anything => Some(TypeRef::Deduced),
            AdditionalProperties::Forbidden => None,
            AdditionalProperties::Unspecified => {
                (preserve || schema.properties.is_empty()).then_some(TypeRef::Deduced)
            }
        };
        Entry { of, declared: false }
    }
}

impl ListAtom<'_> {
    pub(crate) fn is_atomic(&self) -> bool {
        *self.kind == ListType::Atomic
    }

    /// Returns the path element of a list item. Absent key fields take their defaults.
    pub(crate) fn path_element(&self, item: &Value) -> Result<PathElement, String> {
        match self.kind {
            ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            ListType::Map(keys) => self.key_path_element(item, keys),
            ListType::Set => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(PathElement::Value(OrderedValue(scalar.clone()))),
            },
        }
    }

    /// Returns whether two items have the same identity, without building path elements.
    pub(crate) fn same_identity(&self, left: &Value, right: &Value) -> bool {
        match self.kind {
            ListType::Atomic => false,
            ListType::Set => left == right,
            ListType::Map(keys) => {
                let value = |item: &'_ Value, key: &str| item.get(key).cloned();
                left.is_object()
                    && right.is_object()
                    && keys.iter().all(|key| match (left.get(&**key), right.get(&**key)) {
                        (Some(left), Some(right)) => OrderedValue::compare(left, right).is_eq(),
                        (None, None) => true,
                        _ => {
                            value(left, key).or_else(|| self.default(key).cloned())
                                == value(right, key).or_else(|| self.default(key).cloned())
                        }
                    })
            }
        }
    }

    /// Returns the first duplicate item.
    pub(crate) fn first_duplicate(&self, items: &[Value]) -> Option<usize> {
        /// Beyond this length, a look-up is faster than pairwise comparison.
        const SHORT: usize = 64;
        if items.len() <= SHORT {
            let repeats =
                |index: &usize| items[..*index].iter().any(|other| self.same_identity(&items[*index], other));
            return (0..items.len()).find(repeats);
        }
        let mut seen = BTreeSet::new();
        items.iter().position(|item| self.path_element(item).is_ok_and(|element| !seen.insert(element)))
    }

    /// Returns whether an item has an identity.
    fn is_identifiable(&self, item: &Value) -> bool {
        match self.kind {
            ListType::Atomic => false,
            ListType::Set => !item.is_null() && !item.is_object() && !item.is_array(),
            ListType::Map(keys) => item.as_object().is_some_and(|map| {
                keys.iter().any(|key| map.contains_key(&**key) || self.default(key).is_some())
            }),
        }
    }

    fn default(&self, key: &str) -> Option<&Value> {
        match self.item {
            TypeRef::Schema { schema, .. } => schema.field(key).and_then(|field| field.default()),
            _ => None,
        }
    }

    fn key_path_element(&self, item: &Value, keys: &[Box<str>]) -> Result<PathElement, String> {
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let fields = keys.iter().filter_map(|key| {
            let value = map.get(&**key).or_else(|| self.default(key))?;
            Some((key.clone(), OrderedValue(value.clone())))
        });
        let fields: Vec<_> = fields.collect();
        if fields.is_empty() {
            let keys: Vec<_> = keys.iter().map(|key| go_text::quote(key)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        Ok(PathElement::key(fields))
    }
}

/// Returns a value as a map; `None` for null and other types.
pub(crate) fn as_map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

pub(crate) fn as_list(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice)
}

// === Errors ===

/// Errors of a value that does not conform to its type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeErrors(Vec<(String, String)>);

impl TypeErrors {
    pub(crate) fn one(message: impl Into<String>) -> Self {
        Self(vec![(String::new(), message.into())])
    }

    /// Prefixes the errors' paths with an element.
    pub(crate) fn at(mut self, element: &dyn fmt::Display) -> Self {
        let step = element.to_string();
        for (path, _) in &mut self.0 {
            path.insert_str(0, &step);
        }
        self
    }

    fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let print = |(path, message): &(String, String)| {
            if path.is_empty() { message.clone() } else { format!("{path}: {message}") }
        };
        match self.0.as_slice() {
            [one] => f.write_str(&print(one)),
            several => {
                f.write_str("errors:")?;
                several.iter().try_for_each(|error| write!(f, "\n  {}", print(error)))
            }
        }
    }
}

impl std::error::Error for TypeErrors {}

/// Checks that an object conforms to its type. An applied configuration may not have duplicate list items.
pub fn validate(value: &Value, of: TypeRef<'_>, allow_duplicates: bool) -> Result<(), TypeErrors> {
    match of.atom(Some(value)) {
        Atom::Scalar(kind) => validate_scalar(value, kind),
        Atom::Map(atom) => {
            let Some(map) = value.as_object() else {
                return type_error(value, "map");
            };
            let mut errors = TypeErrors::default();
            for (key, item) in map {
                let result = match atom.entry(key).of {
                    Some(of) => validate(item, of, allow_duplicates),
                    None => Err(TypeErrors::one("field not declared in schema")),
                };
                if let Err(error) = result {
                    errors.extend(error.at(&format_args!(".{key}")));
                }
            }
            errors.into_result()
        }
        Atom::List(atom) => {
            let Some(items) = value.as_array() else {
                return type_error(value, "list");
            };
            validate_items(items, atom, allow_duplicates)
        }
    }
}

fn validate_items(items: &[Value], atom: ListAtom<'_>, allow_duplicates: bool) -> Result<(), TypeErrors> {
    let mut errors = TypeErrors::default();
    let name = |index: usize, item: &Value| match atom.path_element(item) {
        Ok(element) => element,
        Err(_) => PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX)),
    };
    for (index, item) in items.iter().enumerate() {
        if !atom.is_atomic() && !atom.is_identifiable(item) {
            let why = atom.path_element(item).err().unwrap_or_default();
            errors.extend(TypeErrors::one(format!("element {index}: {why}")));
            return errors.into_result();
        }
        if let Err(error) = validate(item, atom.item, allow_duplicates) {
            errors.extend(error.at(&name(index, item)));
        }
    }
    if !atom.is_atomic()
        && !allow_duplicates
        && let Some(index) = atom.first_duplicate(items)
    {
        errors.extend(TypeErrors::one(format!("duplicate entries for key {}", name(index, &items[index]))));
    }
    errors.into_result()
}

fn type_error(value: &Value, expected: &str) -> Result<(), TypeErrors> {
    if value.is_null() {
        return Ok(());
    }
    Err(TypeErrors::one(format!("expected {expected}, got &{{{}}}", go_text::display(value))))
}

pub(crate) fn validate_scalar(value: &Value, kind: ScalarKind) -> Result<(), TypeErrors> {
    let message = match (kind, value) {
        (_, Value::Null) | (ScalarKind::Numeric, Value::Number(_)) => return Ok(()),
        (ScalarKind::String, Value::String(_)) | (ScalarKind::Boolean, Value::Bool(_)) => return Ok(()),
        (ScalarKind::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return Ok(()),
        (ScalarKind::Numeric, other) => {
            format!("expected numeric (int or float), got {}", go_text::type_name(other))
        }
        (ScalarKind::String, other) => {
            format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(other))
        }
        (ScalarKind::Boolean, other) => format!("expected boolean, got &{{{}}}", go_text::display(other)),
        (ScalarKind::Untyped, other) => format!("expected any scalar, got &{{{}}}", go_text::display(other)),
    };
    Err(TypeErrors::one(message))
}

/// `%#v`
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => go_text::quote(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(go_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let entries =
                map.iter().map(|(key, value)| format!("{}:{}", go_text::quote(key), go_syntax(value)));
            format!("map[string]interface {{}}{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        other => go_text::display(other),
    }
}
