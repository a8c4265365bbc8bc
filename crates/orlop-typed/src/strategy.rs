//! Strategies of typed kinds, and their adapter to the server's.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    fields::field_text,
    schema::{self, Schema},
    time::Time,
};
use orlop_server::{
    registry::{RequestContext, StaticOrBoxed, Strategy},
    table::{Column, Columns, DEFAULT_COLUMNS},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::sync::Arc;

use crate::object::Object;

/// Strategy of a typed kind: what its schema cannot express. Every method has a default that does nothing.
pub trait TypedStrategy<T>: Send + Sync + 'static {
    /// Sets fields that the server owns. `old` is absent on create.
    fn prepare(&self, _object: &mut Object<T>, _old: Option<&Object<T>>) {}

    /// Validates an object, or a change of it.
    fn validate(&self, _object: &Object<T>, _old: Option<&Object<T>>) -> Vec<FieldError> {
        Vec::new()
    }

    /// Returns warnings for the client.
    fn warnings(&self, _object: &Object<T>) -> Vec<String> {
        Vec::new()
    }

    /// Returns printer columns after the name.
    fn columns(&self) -> Vec<TypedColumn<T>> {
        Vec::new()
    }

    /// Returns the value of a selectable field; `None` for the one at its path.
    fn field(&self, _object: &Object<T>, _path: &str) -> Option<String> {
        None
    }
}

/// A strategy without additions to the schema.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStrategy;

impl<T> TypedStrategy<T> for NoStrategy {}

/// A printer column.
#[derive(Debug)]
pub struct TypedColumn<T> {
    /// Definition of the column.
    pub column: Column,
    /// Returns the cell of an object.
    pub cell: fn(&Object<T>) -> Value,
}

impl<T> TypedColumn<T> {
    /// Returns a column that is always shown.
    pub fn new(name: &str, cell: fn(&Object<T>) -> Value) -> Self {
        Self { column: Column::text(name), cell }
    }
}

/// Adapts a typed strategy to the server's.
pub(crate) struct Adapter<T> {
    pub(crate) strategy: Box<dyn TypedStrategy<T>>,
    pub(crate) schema: Arc<Schema>,
    pub(crate) published: Value,
}

impl<T: 'static> Adapter<T> {
    pub(crate) fn new(strategy: Box<dyn TypedStrategy<T>>, schema: Arc<Schema>, published: Value) -> Self {
        Self { strategy, schema, published }
    }
}

/// Deserializes an object into its type.
fn typed<T: DeserializeOwned>(object: &Value) -> Result<Object<T>, String> {
    serde_json::from_value(object.clone()).map_err(|error| error.to_string())
}

impl<T: Serialize + DeserializeOwned + 'static> Adapter<T> {
    fn prepare(&self, object: &mut Value, old: Option<&Value>) {
        // Validation, which comes next, refuses what does not deserialize.
        let Ok(mut new) = typed::<T>(object) else { return };
        let old = old.and_then(|old| typed::<T>(old).ok());
        self.strategy.prepare(&mut new, old.as_ref());
        if let (Ok(Value::Object(prepared)), Some(map)) = (serde_json::to_value(&new), object.as_object_mut())
        {
            map.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind") || prepared.contains_key(key));
            map.extend(prepared);
        }
    }
}

impl<T: Serialize + DeserializeOwned + 'static> Strategy for Adapter<T> {
    fn prepare_for_create(&self, object: &mut Value, _context: &RequestContext<'_>) {
        self.prepare(object, None);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, _context: &RequestContext<'_>) {
        self.prepare(object, Some(old));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let errors = schema::validate(object, &self.schema);
        if !errors.is_empty() {
            return errors;
        }
        match typed::<T>(object) {
            Ok(object) => self.strategy.validate(&object, None),
            // Only what the schema cannot express, such as an error of a custom deserializer.
            Err(error) => vec![FieldError::invalid_printed(&FieldPath::nil(), "object", error)],
        }
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        match (typed::<T>(object), typed::<T>(old)) {
            (Ok(object), Ok(old)) => {
                // Errors of the object itself have been reported.
                let alone = self.strategy.validate(&object, None);
                let mut errors = self.strategy.validate(&object, Some(&old));
                errors.retain(|error| !alone.contains(error));
                errors
            }
            _ => Vec::new(),
        }
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        typed::<T>(object).map(|object| self.strategy.warnings(&object)).unwrap_or_default()
    }

    fn published_schema(&self) -> Option<Value> {
        Some(self.published.clone())
    }

    fn field_value(&self, object: &Value, path: &str) -> String {
        let own = typed::<T>(object).ok().and_then(|object| self.strategy.field(&object, path));
        own.unwrap_or_else(|| field_text(object, path))
    }
}

/// Returns the columns of a typed kind: its own between name and age, or the default ones if it has none.
pub(crate) fn typed_columns<T: DeserializeOwned + 'static>(
    strategy: &dyn TypedStrategy<T>,
) -> StaticOrBoxed<dyn Columns> {
    match strategy.columns() {
        none if none.is_empty() => StaticOrBoxed::Static(&DEFAULT_COLUMNS),
        own => StaticOrBoxed::Boxed(Box::new(Table(own))),
    }
}

/// Printer columns: name, the type's, age.
struct Table<T>(Vec<TypedColumn<T>>);

impl<T: DeserializeOwned + 'static> Columns for Table<T> {
    fn definitions(&self) -> Vec<Column> {
        let own = self.0.iter().map(|typed| typed.column.clone());
        std::iter::once(Column::name()).chain(own).chain([Column::text("Age")]).collect()
    }

    fn cells(&self, object: &Value, now: Time) -> Vec<Value> {
        let typed = typed::<T>(object).ok();
        let own = self.0.iter().map(|column| typed.as_ref().map_or(Value::Null, column.cell));
        let name = field_text(object, "metadata.name").into();
        std::iter::once(name).chain(own).chain([orlop_server::table::age(object, now)]).collect()
    }
}
