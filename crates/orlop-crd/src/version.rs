//! Versions: schema, rules and columns of a version, built on first use.

use crate::columns::Columns;
use crate::rules::Rules;
use crate::scale::Scale;
use crate::selectable::SelectableFields;
use orlop_api::schema::unstructured::{flag, text};
use orlop_api::schema::{Schema, from_openapi};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};

/// A version of a definition. Its schema stays JSON text until first use.
#[derive(Debug)]
pub struct Version {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub namespaced: bool,
    pub served: bool,
    pub storage: bool,
    pub deprecated: bool,
    /// There is a `status` subresource.
    pub has_status: bool,
    deprecation_warning: String,
    scale: Option<Scale>,
    preserve_unknown: bool,
    /// `schema.openAPIV3Schema`, `additionalPrinterColumns` and `selectableFields` as JSON text. Text takes a tenth of the
    /// memory of parsed values, and most versions are never used.
    schema_text: Box<str>,
    columns_text: Box<str>,
    selectable_text: Box<str>,
    schema: OnceLock<Arc<Schema>>,
    rules: OnceLock<Rules>,
    columns: OnceLock<Columns>,
    selectable: OnceLock<SelectableFields>,
}

impl Version {
    pub(crate) fn of(
        version: &Value,
        group: &str,
        kind: &str,
        namespaced: bool,
        preserve_unknown: bool,
        standard_warning: String,
    ) -> Self {
        let subresources = version.get("subresources").unwrap_or(&Value::Null);
        let written = |value: Option<&Value>| {
            let value = value.filter(|value| !value.is_null());
            value.map_or_else(Box::default, |value| value.to_string().into_boxed_str())
        };
        Self {
            name: text(version, "name").to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespaced,
            served: flag(version, "served"),
            storage: flag(version, "storage"),
            deprecated: flag(version, "deprecated"),
            has_status: subresources.get("status").is_some_and(|status| !status.is_null()),
            deprecation_warning: version
                .get("deprecationWarning")
                .and_then(Value::as_str)
                .map_or(standard_warning, str::to_owned),
            scale: subresources.get("scale").and_then(Scale::of),
            preserve_unknown,
            schema_text: written(version.get("schema").and_then(|schema| schema.get("openAPIV3Schema"))),
            columns_text: written(version.get("additionalPrinterColumns")),
            selectable_text: written(version.get("selectableFields")),
            schema: OnceLock::new(),
            rules: OnceLock::new(),
            columns: OnceLock::new(),
            selectable: OnceLock::new(),
        }
    }

    /// `group/version`
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }

    /// Returns the deprecation warning of a deprecated version.
    pub fn warning(&self) -> Option<String> {
        self.deprecated.then(|| self.deprecation_warning.clone())
    }

    /// Returns `schema.openAPIV3Schema` as written; null if there is none.
    pub fn open_api_schema(&self) -> Value {
        parsed(&self.schema_text)
    }

    /// Returns true once the schema has been built. The first write of a version also compiles its rules, which can
    /// take long.
    pub fn is_built(&self) -> bool {
        self.schema.get().is_some()
    }

    /// Returns the structural schema of the version.
    pub fn schema(&self) -> &Arc<Schema> {
        self.schema.get_or_init(|| {
            let mut source = self.open_api_schema();
            if source.is_null() || self.preserve_unknown {
                // Without a schema, or with preserveUnknownFields, the root preserves unknown fields.
                let mut map = source.as_object().cloned().unwrap_or_default();
                map.entry("type").or_insert_with(|| json!("object"));
                map.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
                source = Value::Object(map);
            }
            Arc::new(from_openapi(&source))
        })
    }

    /// Returns the compiled CEL rules (`x-kubernetes-validations`).
    pub fn rules(&self) -> &Rules {
        self.rules.get_or_init(|| {
            // Most schemas have no rules and need not be parsed.
            if self.schema_text.contains("x-kubernetes-validations") {
                Rules::compile(&self.open_api_schema())
            } else {
                Rules::default()
            }
        })
    }

    /// Returns the printer columns.
    pub fn columns(&self) -> &Columns {
        self.columns.get_or_init(|| Columns::of(&parsed(&self.columns_text)))
    }

    /// Returns the `scale` subresource, if any.
    pub fn scale(&self) -> Option<&Scale> {
        self.scale.as_ref()
    }

    /// Returns the selectable fields.
    pub fn selectable(&self) -> &SelectableFields {
        self.selectable.get_or_init(|| SelectableFields::of(&parsed(&self.selectable_text)))
    }
}

fn parsed(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { serde_json::from_str(text).unwrap_or_default() }
}
