//! Differences between the desired and the observed fields of an object.

use serde_json::{Map, Value};

use super::{Field, Leaf, Type};

/// A field that differs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// Name of the top-level field.
    pub(crate) field: String,
    /// Path below `spec`.
    pub(crate) path: String,
}

/// Compares what is desired with what is observed.
///
/// A field that is desired must be observed as it is. One that is not desired counts only if the notation defines what
/// absence means; otherwise AWS' default stands.
pub(crate) fn compare(fields: &[Field], desired: &Value, observed: &Value) -> Vec<Difference> {
    let mut out = Vec::new();
    for field in fields.iter().filter(|field| !field.is_reference() && !field.ignored) {
        let mut paths = Vec::new();
        compare_field(field, desired, observed, &field.name, &mut paths);
        out.extend(paths.into_iter().map(|path| Difference { field: field.name.clone(), path }));
    }
    out
}

fn compare_field(field: &Field, desired: &Value, observed: &Value, path: &str, out: &mut Vec<String>) {
    let default = field.absent_value();
    let wanted = present(desired.get(&field.name)).cloned().or_else(|| default.clone());
    let Some(wanted) = wanted else { return };
    let seen = present(observed.get(&field.name)).cloned().or(default).unwrap_or(Value::Null);
    match (&field.kind, &wanted, &seen) {
        (Type::Object(fields), Value::Object(_), seen) => {
            let empty = Value::Object(Map::new());
            let seen = if seen.is_object() { seen } else { &empty };
            // An object that exists and one that does not differ, even if no field does.
            let before = out.len();
            for inner in fields.iter().filter(|inner| !inner.is_reference() && !inner.ignored) {
                compare_field(inner, &wanted, seen, &format!("{path}.{}", inner.name), out);
            }
            let vanished = observed.get(&field.name).is_none() && desired.get(&field.name).is_some();
            if vanished && out.len() == before && field.absent.is_none() && !is_empty(&wanted) {
                out.push(path.to_owned());
            }
        }
        _ if equal(&field.kind, field.unordered, &wanted, &seen) => {}
        _ => out.push(path.to_owned()),
    }
}

impl Field {
    /// Returns the value that absence stands for, if the notation defines one.
    pub(crate) fn absent_value(&self) -> Option<Value> {
        self.absent.as_ref().map(|absent| match absent {
            Value::Null => zero(&self.kind),
            other => other.clone(),
        })
    }
}

fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(entries) => entries.is_empty(),
        Value::Array(items) => items.is_empty(),
        other => other.is_null(),
    }
}

fn zero(kind: &Type) -> Value {
    match kind {
        Type::Leaf(Leaf::Integer | Leaf::Number) => 0.into(),
        Type::Leaf(Leaf::Boolean) => false.into(),
        Type::Leaf(_) => "".into(),
        Type::List(_) => Value::Array(Vec::new()),
        Type::Object(_) | Type::Map(_) => Value::Object(Map::new()),
    }
}

fn equal(kind: &Type, unordered: bool, wanted: &Value, seen: &Value) -> bool {
    match (kind, wanted, seen) {
        (Type::List(item), Value::Array(wanted), Value::Array(seen)) => {
            if wanted.len() != seen.len() {
                return false;
            }
            let strings = matches!(**item, Type::Leaf(_));
            // Lists of strings are sets, as are tags and fields that the notation marks.
            let tags = wanted.iter().all(|item| item.get("key").is_some() && item.get("value").is_some());
            if !(unordered || strings || tags) {
                return wanted.iter().zip(seen).all(|(one, other)| equal(item, false, one, other));
            }
            let mut left: Vec<&Value> = seen.iter().collect();
            wanted.iter().all(|one| {
                let found = left.iter().position(|other| equal(item, unordered, one, other));
                found.map(|at| left.swap_remove(at)).is_some()
            })
        }
        (Type::Map(item), Value::Object(wanted), Value::Object(seen)) => {
            wanted.len() == seen.len()
                && wanted
                    .iter()
                    .all(|(key, one)| seen.get(key).is_some_and(|other| equal(item, unordered, one, other)))
        }
        (Type::Object(fields), Value::Object(_), Value::Object(_)) => {
            let mut paths = Vec::new();
            for field in fields.iter().filter(|field| !field.is_reference() && !field.ignored) {
                compare_field(field, wanted, seen, "", &mut paths);
            }
            paths.is_empty()
        }
        (Type::Leaf(Leaf::Number | Leaf::Integer), one, other) => one.as_f64() == other.as_f64(),
        (_, one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use serde_json::json;

    fn paths(fields: &str, desired: Value, observed: Value) -> Vec<String> {
        compare(&parse(fields), &desired, &observed).into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn absent_fields_differ_only_where_absence_means_something() {
        let fields = "timeout:i~3 description~ runtime";
        assert!(
            paths(fields, json!({}), json!({"timeout": 3, "description": "", "runtime": "x"})).is_empty()
        );
        assert_eq!(
            paths(fields, json!({}), json!({"timeout": 9, "description": "d"})),
            ["timeout", "description"]
        );
        assert_eq!(paths(fields, json!({"runtime": "a"}), json!({"runtime": "b"})), ["runtime"]);
    }

    #[test]
    fn strings_and_tags_are_sets_and_structs_are_ordered() {
        let fields = "layers[] tags[]{key value} rules[]{id}";
        let one =
            json!({"layers": ["a", "b"], "tags": [{"key": "x", "value": "1"}, {"key": "y", "value": "2"}]});
        let other =
            json!({"layers": ["b", "a"], "tags": [{"key": "y", "value": "2"}, {"key": "x", "value": "1"}]});
        assert!(paths(fields, one, other).is_empty());
        let rules = |ids: [&str; 2]| json!({"rules": [{"id": ids[0]}, {"id": ids[1]}]});
        assert_eq!(paths(fields, rules(["a", "b"]), rules(["b", "a"])), ["rules"]);
        assert!(paths("rules[]#{id}", rules(["a", "b"]), rules(["b", "a"])).is_empty());
    }

    #[test]
    fn nested_paths_name_the_leaf() {
        let fields = "environment~{variables~{}}";
        let desired = json!({"environment": {"variables": {"A": "1"}}});
        assert_eq!(paths(fields, desired.clone(), json!({})), ["environment.variables"]);
        assert_eq!(paths(fields, json!({}), desired), ["environment.variables"]);
    }
}
