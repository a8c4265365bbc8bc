//! A definition's spec in the shape of Kubernetes' internal type.
//!
//! kube-apiserver validates its internal type, in which fields that all versions share are hoisted out of `versions`.
//! Error paths refer to that type.

use orlop_api::field_error::FieldPath;
use orlop_api::schema::unstructured::{flag, list, text};
use serde_json::Value;

const NULL: &Value = &Value::Null;

pub(crate) struct Spec<'a> {
    pub(super) source: &'a Value,
    pub(super) names: &'a Value,
    /// Fields shared by all versions; null where versions differ.
    pub(super) validation: &'a Value,
    pub(super) subresources: &'a Value,
    pub(super) columns: &'a Value,
    pub(super) selectable: &'a Value,
    pub(super) versions: Vec<SpecVersion<'a>>,
}

/// A version with its own fields; shared ones are in [`Spec`].
pub(super) struct SpecVersion<'a> {
    pub(super) source: &'a Value,
    pub(super) name: &'a str,
    pub(super) storage: bool,
    /// `schema`; null if shared.
    pub(super) schema: &'a Value,
    pub(super) subresources: &'a Value,
    pub(super) columns: &'a Value,
    pub(super) selectable: &'a Value,
}

impl<'a> Spec<'a> {
    pub(crate) fn of(definition: &'a Value) -> Self {
        let source = definition.get("spec").unwrap_or(NULL);
        let written = list(source, "versions");
        // Shared fields, and the remaining fields of each version.
        let common = |key: &str| {
            let all = |version: &Value| get(version, key) == get(&written[0], key);
            !written.is_empty() && written.iter().all(all)
        };
        let shared = |key: &str| if common(key) { get(&written[0], key) } else { NULL };
        let own = |version: &'a Value, key: &str| if common(key) { NULL } else { get(version, key) };
        Self {
            source,
            names: source.get("names").unwrap_or(NULL),
            validation: shared("schema"),
            subresources: shared("subresources"),
            columns: shared("additionalPrinterColumns"),
            selectable: shared("selectableFields"),
            versions: written
                .iter()
                .map(|version| SpecVersion {
                    source: version,
                    name: text(version, "name"),
                    storage: flag(version, "storage"),
                    schema: own(version, "schema"),
                    subresources: own(version, "subresources"),
                    columns: own(version, "additionalPrinterColumns"),
                    selectable: own(version, "selectableFields"),
                })
                .collect(),
        }
    }

    /// Returns the name of the first version.
    pub(super) fn version(&self) -> &'a str {
        self.versions.first().map(|version| version.name).unwrap_or_default()
    }

    /// Returns every schema, a shared one once.
    pub(crate) fn schemas(&self) -> impl Iterator<Item = &'a Value> {
        let validations =
            std::iter::once(self.validation).chain(self.versions.iter().map(|version| version.schema));
        validations.filter_map(open_api)
    }

    /// Returns the schema of a version, its own or the shared one.
    pub(super) fn schema_of(&self, name: &str) -> Option<&'a Value> {
        if self.versions.iter().all(|version| version.schema.is_null()) {
            return Some(self.validation);
        }
        self.versions.iter().find(|version| version.name == name).map(|version| version.schema)
    }

    pub(super) fn preserves_unknown_fields(&self) -> bool {
        flag(self.source, "preserveUnknownFields")
    }
}

/// Returns `openAPIV3Schema` of a `schema` or `validation`.
pub(super) fn open_api(validation: &Value) -> Option<&Value> {
    validation.get("openAPIV3Schema").filter(|schema| !schema.is_null())
}

/// Returns a field; an empty list is null, as in Kubernetes.
fn get<'v>(version: &'v Value, key: &str) -> &'v Value {
    let value = version.get(key).unwrap_or(NULL);
    if value.as_array().is_some_and(Vec::is_empty) { NULL } else { value }
}

pub(super) fn path() -> FieldPath {
    FieldPath::root("spec")
}
