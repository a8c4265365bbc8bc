//! Printer columns of built-in kinds: definitions as data, and one function that fills a row.

use orlop_api::{duration, labels::Selector, object_meta, time::Time};
use serde_json::{Map, Value};

use crate::{
    accessors::{list, text},
    table::{Column, Columns},
};

pub(crate) use crate::table::age;

/// A printer column.
#[derive(Clone, Copy)]
pub(crate) struct ColumnDefinition {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    priority: i64,
}

impl ColumnDefinition {
    /// Column of the object's name.
    pub(crate) const NAME: Self = Self::name("Name");
    /// Column of the object's age.
    pub(crate) const AGE: Self = Self::text("Age");

    /// Returns a string column.
    pub(crate) const fn text(name: &'static str) -> Self {
        Self { name, kind: "string", format: "", priority: 0 }
    }

    /// Returns a column with format `name`.
    pub(crate) const fn name(name: &'static str) -> Self {
        Self { format: "name", ..Self::text(name) }
    }

    /// Returns an integer column.
    pub(crate) const fn integer(name: &'static str) -> Self {
        Self { kind: "integer", ..Self::text(name) }
    }

    /// Returns a boolean column.
    pub(crate) const fn boolean(name: &'static str) -> Self {
        Self { kind: "boolean", ..Self::text(name) }
    }

    /// Returns a column of a time.
    pub(crate) const fn date(name: &'static str) -> Self {
        Self { kind: "date", ..Self::text(name) }
    }

    /// Returns a boolean column that only `-o wide` shows.
    pub(crate) const fn wide_boolean(name: &'static str) -> Self {
        Self { priority: 1, ..Self::boolean(name) }
    }

    /// Returns a string column that only `-o wide` shows.
    pub(crate) const fn wide(name: &'static str) -> Self {
        Self { priority: 1, ..Self::text(name) }
    }

    /// Returns the name column that only `-o wide` shows.
    pub(crate) const fn wide_name() -> Self {
        Self { priority: 1, ..Self::NAME }
    }
}

/// Printer columns of a built-in kind.
pub(crate) struct PrinterColumns {
    /// Column definitions.
    pub(crate) definitions: &'static [ColumnDefinition],
    /// Returns the cells of one object, in the order of the definitions.
    pub(crate) cells: fn(&Value, Time) -> Vec<Value>,
}

impl Columns for PrinterColumns {
    fn definitions(&self) -> Vec<Column> {
        let column = |definition: &ColumnDefinition| Column {
            name: definition.name.into(),
            kind: definition.kind.into(),
            format: definition.format.into(),
            description: String::new(),
            priority: definition.priority,
        };
        self.definitions.iter().map(column).collect()
    }

    fn cells(&self, object: &Value, now: Time) -> Vec<Value> {
        (self.cells)(object, now)
    }

    fn show_content_only(&self) -> bool {
        true
    }
}

/// Columns of kinds that show name and age.
pub(crate) static NAME_AND_AGE: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::AGE],
    cells: |object, now| vec![name(object), age(object, now)],
};

/// Returns the name cell.
pub(crate) fn name(object: &Value) -> Value {
    object_meta::text(object_meta::of(object), "name").into()
}

/// Formats the time elapsed since `then`.
pub(crate) fn format_age(then: Option<Time>, now: Time) -> String {
    duration::age(then, now)
}

/// Formats labels as `a=b,c=d`.
pub(crate) fn format_labels(labels: &Map<String, Value>) -> Value {
    if labels.is_empty() {
        return "<none>".into();
    }
    let pairs = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",").into()
}

/// Formats a label selector as in a query.
pub(crate) fn format_selector(selector: Option<&Value>) -> Value {
    match Selector::from_label_selector(selector.unwrap_or(&Value::Null)) {
        Err(_) => "<error>".into(),
        Ok(selector) => match selector.to_string() {
            none if none.is_empty() => "<none>".into(),
            some => some.into(),
        },
    }
}

/// Returns two cells: names and images of a pod template's containers.
pub(crate) fn container_cells(object: &Value, pod_spec: &str) -> [Value; 2] {
    let containers = list(object, &format!("{pod_spec}/containers"));
    let joined = |field: &str| -> Value {
        containers.iter().map(|container| text(container, field)).collect::<Vec<_>>().join(",").into()
    };
    [joined("/name"), joined("/image")]
}

/// Joins the first `count_max` items and counts the rest; `none` if there are no items.
pub(crate) fn join_first(items: &[String], count_max: usize, none: &str) -> String {
    let shown = items.iter().take(count_max).map(String::as_str).collect::<Vec<_>>().join(",");
    match items.len().checked_sub(count_max) {
        Some(rest @ 1..) => format!("{shown} + {rest} more..."),
        _ if shown.is_empty() => none.to_owned(),
        _ => shown,
    }
}

/// Joins the distinct addresses of a load balancer.
pub(crate) fn load_balancer_addresses(object: &Value) -> String {
    let ingress = list(object, "/status/loadBalancer/ingress").iter();
    let addresses = ingress.map(|point| match text(point, "/ip") {
        "" => text(point, "/hostname"),
        address => address,
    });
    let addresses: std::collections::BTreeSet<_> = addresses.filter(|address| !address.is_empty()).collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
pub(crate) mod tests {
    use orlop_api::time::Time;
    use serde_json::{Value, json};

    use super::*;

    /// Returns the row of an object at 2026-01-01T01:00:00Z.
    pub(crate) fn row(table: &PrinterColumns, object: &Value) -> Vec<Value> {
        let now = Time::parse("2026-01-01T01:00:00Z").unwrap();
        let cells = table.cells(object, now);
        assert_eq!(cells.len(), table.definitions.len(), "a cell for every column");
        cells
    }

    #[test]
    fn labels_selectors_and_lists_match_kubectl() {
        assert_eq!(format_labels(json!({"b": "2", "a": "1"}).as_object().unwrap()), "a=1,b=2");
        assert_eq!(format_labels(&Map::new()), "<none>");
        assert_eq!(format_selector(None), "<none>");
        assert_eq!(format_selector(Some(&json!({"matchLabels": {"a": "b"}}))), "a=b");
        assert_eq!(
            format_selector(Some(&json!({"matchExpressions": [{"key": "a", "operator": "?"}]}))),
            "<error>"
        );
        let items: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        assert_eq!(join_first(&items, 3, "-"), "a,b,c + 1 more...");
        assert_eq!(join_first(&items[..3], 3, "-"), "a,b,c");
        assert_eq!(join_first(&[], 3, "<unset>"), "<unset>");
    }
}
