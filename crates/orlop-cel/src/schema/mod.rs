//! Schemas as CEL declares them: the view of a structural schema that expressions are type-checked against.
//!
//! A [`Schema`] is built from a [`SchemaSpec`] (or from OpenAPI v3 JSON, see [`Schema::from_openapi`]) and then never
//! changes. It declares the fields of an expression and their types, the interpretation of JSON (a string of format
//! `date-time` is a timestamp, a list of type `set` compares as a set), and size limits for cost estimates. Untyped
//! parts (arrays without items, preserve-unknown-fields without a type) are not visible to expressions. Schemas are not
//! validated here.

mod openapi;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::escape::{escape, is_reserved};

/// Request size limit of the API, from which default size limits are derived.
pub const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// Keywords of a structural schema that CEL uses.
#[derive(Clone, Debug, Default)]
pub struct SchemaSpec {
    /// Name of an object type; empty for one that is named by its path.
    pub name: String,
    /// `type`; empty when the schema has none.
    pub kind: String,
    /// `format`
    pub format: String,
    /// `nullable`
    pub nullable: bool,
    /// `properties`
    pub properties: BTreeMap<String, SchemaSpec>,
    /// `required`
    pub required: Vec<String>,
    /// `additionalProperties`, where it is a schema
    pub additional_properties: Option<Box<SchemaSpec>>,
    /// `items`
    pub items: Option<Box<SchemaSpec>>,
    /// `maxLength`
    pub max_length: Option<u64>,
    /// `maxItems`
    pub max_items: Option<u64>,
    /// `maxProperties`
    pub max_properties: Option<u64>,
    /// The longest string among `enum`, in bytes.
    pub enum_length_max: Option<u64>,
    /// The schema has a `default`.
    pub has_default: bool,
    /// `x-kubernetes-int-or-string`
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`
    pub preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource`
    pub embedded_resource: bool,
    /// `x-kubernetes-list-type`
    pub list_type: ListType,
    /// Parts without a declared type are visible as `dyn`, and reserved words name fields without escaping.
    pub lenient: bool,
}

impl SchemaSpec {
    /// Marks this schema and everything below it as lenient.
    #[must_use]
    pub fn into_lenient(mut self) -> Self {
        self.lenient = true;
        self.properties =
            self.properties.into_iter().map(|(name, spec)| (name, spec.into_lenient())).collect();
        self.additional_properties = self.additional_properties.map(|spec| Box::new(spec.into_lenient()));
        self.items = self.items.map(|spec| Box::new(spec.into_lenient()));
        self
    }
}

/// List type: equality and merge semantics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// In order, as a whole.
    #[default]
    Atomic,
    /// Without order; `+` is the union.
    Set,
    /// By these keys; `+` overwrites elements with equal keys.
    Map(Vec<String>),
}

/// An immutable, shared schema.
#[derive(Clone, Debug)]
pub struct Schema {
    pub(crate) node: Arc<Node>,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// Type name of an object, derived from its path; empty for other types.
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) nullable: bool,
    /// Most characters, items or entries.
    pub(crate) max_elements: u64,
    /// Fewest bytes as JSON.
    pub(crate) min_bytes: u64,
}

#[derive(Debug)]
pub(crate) enum Shape {
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Date,
    DateTime,
    IntOrString,
    List {
        items: Schema,
        list_type: ListType,
    },
    Map {
        values: Schema,
    },
    Object {
        fields: BTreeMap<String, Field>,
        /// Undeclared fields are `dyn`.
        open: bool,
    },
    Dyn,
}

/// A field that expressions can name.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) json_name: String,
    pub(crate) schema: Schema,
    /// A second name of a field that also goes by its escaped name.
    pub(crate) alias: bool,
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.node, &other.node) || self.node.name == other.node.name
    }
}

impl Schema {
    /// Builds the view of `spec`; `None` if expressions cannot see anything of it. `name` becomes the name of object
    /// types; `is_resource` adds apiVersion, kind, metadata.name and metadata.generateName.
    pub fn new(name: &str, spec: &SchemaSpec, is_resource: bool) -> Option<Self> {
        let with_meta;
        let spec = if is_resource {
            with_meta = with_resource_meta(spec);
            with_meta.as_ref().unwrap_or(spec)
        } else {
            spec
        };
        let name = if spec.name.is_empty() { name } else { &spec.name };
        let (shape, max_elements, min_bytes) = shape(name, spec)?;
        // Only objects are known by name; a large schema has many more other nodes.
        let name = if matches!(shape, Shape::Object { .. }) { name.to_owned() } else { String::new() };
        let node = Node { name, shape, nullable: spec.nullable, max_elements, min_bytes };
        Some(Self { node: Arc::new(node) })
    }

    /// The schema of a list with such items.
    #[must_use]
    pub fn list_of(items: &Schema) -> Self {
        let max_elements = (REQUEST_BYTES_MAX - 2) / (items.node.min_bytes + 1);
        let shape = Shape::List { items: items.clone(), list_type: ListType::Atomic };
        let node = Node { name: String::new(), shape, nullable: false, max_elements, min_bytes: 2 };
        Self { node: Arc::new(node) }
    }

    /// The name of the type, if it is an object's.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// The schema of a field, by its escaped name.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.field_entry(name).map(|field| &field.schema)
    }

    /// The schema of the items of a list or the values of a map.
    pub fn elements(&self) -> Option<&Schema> {
        match &self.node.shape {
            Shape::List { items, .. } => Some(items),
            Shape::Map { values } => Some(values),
            _ => None,
        }
    }

    /// Returns the maximal cardinality of this schema in one request: the cost factor of rules below unbounded lists.
    pub fn cardinality_max(&self) -> u64 {
        REQUEST_BYTES_MAX / (self.node.min_bytes + 1)
    }

    pub(crate) fn field_entry(&self, name: &str) -> Option<&Field> {
        match &self.node.shape {
            Shape::Object { fields, .. } => fields.get(name),
            _ => None,
        }
    }

    /// Returns whether undeclared fields are `dyn` instead of errors.
    pub fn is_open(&self) -> bool {
        matches!(self.node.shape, Shape::Dyn | Shape::Object { open: true, .. })
    }

    /// The declared fields of an object by their names in JSON.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Schema)> {
        let fields = match &self.node.shape {
            Shape::Object { fields, .. } => Some(fields),
            _ => None,
        };
        let fields = fields.into_iter().flat_map(BTreeMap::values).filter(|field| !field.alias);
        fields.map(|field| (field.json_name.as_str(), &field.schema))
    }

    pub(crate) fn max_elements(&self) -> u64 {
        self.node.max_elements
    }
}

fn shape(name: &str, spec: &SchemaSpec) -> Option<(Shape, u64, u64)> {
    if spec.int_or_string {
        let longest = spec.max_length.map_or(REQUEST_BYTES_MAX - 2, |length| length.saturating_mul(4));
        return Some((Shape::IntOrString, longest, 1));
    }
    match spec.kind.as_str() {
        "boolean" => Some((Shape::Bool, 0, 4)),
        "integer" => Some((Shape::Int, 0, 1)),
        "number" => Some((Shape::Double, 0, 1)),
        "string" => Some(string_shape(spec)),
        "array" => {
            let unknown = SchemaSpec { lenient: spec.lenient, ..SchemaSpec::default() };
            let item = spec.items.as_deref().unwrap_or(&unknown);
            let items = Schema::new(&format!("{name}.@idx"), item, item.embedded_resource)?;
            let most = spec.max_items.unwrap_or((REQUEST_BYTES_MAX - 2) / (items.node.min_bytes + 1));
            Some((Shape::List { items, list_type: spec.list_type.clone() }, most, 2))
        }
        "object" => match spec.additional_properties.as_deref() {
            Some(value) => {
                let values = Schema::new(&format!("{name}.@elem"), value, value.embedded_resource)?;
                // Two bytes of key, its quotes, a colon and a comma beside each value.
                let most =
                    spec.max_properties.unwrap_or((REQUEST_BYTES_MAX - 2) / (values.node.min_bytes + 6));
                Some((Shape::Map { values }, most, 2))
            }
            None if spec.lenient && spec.properties.is_empty() => Some((Shape::Dyn, 0, 2)),
            None => Some(object_shape(name, spec)),
        },
        _ if spec.lenient => Some((Shape::Dyn, 0, 1)),
        _ => None,
    }
}

fn string_shape(spec: &SchemaSpec) -> (Shape, u64, u64) {
    match spec.format.as_str() {
        "byte" => (Shape::Bytes, spec.max_length.unwrap_or(REQUEST_BYTES_MAX - 2), 2),
        "duration" => (Shape::Duration, 32, 3),
        "date" => (Shape::Date, 12, 12),
        "date-time" => (Shape::DateTime, 32, 21),
        _ => {
            // maxLength counts characters, of up to four bytes each.
            let stated = spec.max_length.map(|length| length.saturating_mul(4));
            let longest = stated.or(spec.enum_length_max).unwrap_or(REQUEST_BYTES_MAX - 2);
            (Shape::String, longest, 2)
        }
    }
}

fn object_shape(name: &str, spec: &SchemaSpec) -> (Shape, u64, u64) {
    let mut fields = BTreeMap::new();
    let mut min_bytes = 2;
    for (json_name, property) in &spec.properties {
        let identifier = escape(json_name);
        let field_name = format!("{name}.{}", identifier.as_deref().unwrap_or(json_name));
        let Some(schema) = Schema::new(&field_name, property, property.embedded_resource) else { continue };
        if spec.required.contains(json_name) && !property.has_default {
            min_bytes += json_name.len() as u64 + schema.node.min_bytes + 4;
        }
        let Some(identifier) = identifier else { continue };
        if spec.lenient && identifier != *json_name && is_reserved(json_name) {
            let field = Field { json_name: json_name.clone(), schema: schema.clone(), alias: true };
            fields.insert(json_name.clone(), field);
        }
        fields.insert(identifier, Field { json_name: json_name.clone(), schema, alias: false });
    }
    let open = spec.lenient && spec.preserve_unknown_fields;
    (Shape::Object { fields, open }, 0, min_bytes)
}

/// A resource shows its type and name even if the schema does not mention them.
fn with_resource_meta(spec: &SchemaSpec) -> Option<SchemaSpec> {
    let is = |spec: Option<&SchemaSpec>, kind: &str| spec.is_some_and(|spec| spec.kind == kind);
    let metadata = spec.properties.get("metadata");
    let named = |field: &str| is(metadata.and_then(|metadata| metadata.properties.get(field)), "string");
    if is(spec.properties.get("kind"), "string")
        && is(spec.properties.get("apiVersion"), "string")
        && is(metadata, "object")
        && named("name")
        && named("generateName")
    {
        return None;
    }
    let string = SchemaSpec { kind: "string".to_owned(), ..SchemaSpec::default() };
    let names = ["name", "generateName"].map(|field| (field.to_owned(), string.clone()));
    let metadata =
        SchemaSpec { kind: "object".to_owned(), properties: names.into(), ..SchemaSpec::default() };
    let mut result = spec.clone();
    result.properties.insert("kind".to_owned(), string.clone());
    result.properties.insert("apiVersion".to_owned(), string);
    result.properties.insert("metadata".to_owned(), metadata);
    Some(result)
}
