//! Tables: what kubectl shows of a list.

use orlop_api::{duration, object_meta, time::Time};
use serde_json::{Value, json};

/// The columns of a kind and how to fill them.
pub trait Columns: Send + Sync {
    /// Name, type, format, description and priority of each column.
    fn definitions(&self) -> Vec<Column>;

    /// The cells of one object, in that order.
    fn cells(&self, object: &Value, now: Time) -> Vec<Value>;
}

/// One column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// The JSON type of its cells.
    pub kind: String,
    /// `name` marks the object's name.
    pub format: String,
    /// What it means.
    pub description: String,
    /// 0 is always shown; more only with `-o wide`.
    pub priority: i64,
}

impl Column {
    /// A column of text that is always shown.
    pub fn text(name: &str) -> Self {
        Self {
            name: name.into(),
            kind: "string".into(),
            format: String::new(),
            description: String::new(),
            priority: 0,
        }
    }

    /// The column of names.
    pub fn name() -> Self {
        Self { format: "name".into(), ..Self::text("Name") }
    }

    /// The same, shown only with `-o wide`.
    #[must_use]
    pub fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// As the Table carries it.
    pub fn to_value(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format,
            "description": self.description, "priority": self.priority,
        })
    }
}

/// Name and creation time: what a kind without columns of its own shows.
#[derive(Clone, Copy, Debug)]
pub struct NameAndCreation;

impl Columns for NameAndCreation {
    fn definitions(&self) -> Vec<Column> {
        vec![Column::name(), Column { kind: "date".into(), ..Column::text("Created At") }]
    }

    fn cells(&self, object: &Value, _now: Time) -> Vec<Value> {
        let meta = object_meta::of(object);
        vec![
            object_meta::text(meta, "name").into(),
            meta.get("creationTimestamp").cloned().unwrap_or(Value::Null),
        ]
    }
}

/// How old an object is, as kubectl shows it.
pub fn age(object: &Value, now: Time) -> Value {
    let created = Time::parse(object_meta::text(object_meta::of(object), "creationTimestamp"));
    duration::age(created, now).into()
}
