//! Values against their schema, with Kubernetes' messages.
//!
//! Every check runs even after another failed, in a fixed order: type, alternatives,
//! text, format, number, list, enumeration, object. Alternatives (`anyOf`, `oneOf`)
//! report the branch that came closest, which is the one that matched most often.
//!
//! On updates, what did not change does not fail ("ratcheting"): a node equal to the
//! old one it corresponds to keeps its errors to itself.

use super::formats::{is_known_format, matches_format};
use super::{Additional, Checks, ListType, MapType, Rule, Schema, Type};
use crate::field_error::{FieldError, FieldErrorKind, FieldPath};
use crate::go_text::{self, quote};
use serde_json::{Map, Number, Value};

/// Checks a value that is created.
pub fn validate(value: &Value, schema: &Schema) -> Vec<FieldError> {
    check(value, None, schema, "").errors
}

/// Checks a value that replaces an old one.
pub fn validate_update(value: &Value, old: &Value, schema: &Schema) -> Vec<FieldError> {
    ratcheted(value, Some(old), schema, "").errors
}

/// Whether these errors keep rules from running, because a rule could fail on what is broken.
pub fn blocks_rules(errors: &[FieldError]) -> bool {
    let blocking = |error: &FieldError| {
        matches!(
            error.kind,
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    };
    errors.iter().any(blocking)
}

/// What is said beside errors that kept the rules from running.
pub fn rules_not_checked() -> FieldError {
    FieldError::invalid(
        &FieldPath::nil(),
        Value::Null,
        "some validation rules were not checked because the object was invalid; \
         correct the existing errors to complete validation",
    )
}

/// A node of an object whose schema has rules.
#[derive(Debug)]
pub struct RuledNode<'a> {
    pub path: FieldPath,
    pub value: &'a Value,
    /// The value it replaces, where one corresponds.
    pub old: Option<&'a Value>,
    pub schema: &'a Schema,
    pub rules: &'a [Rule],
}

/// The one place where `x-kubernetes-validations` run: calls `run` for every node with rules, parents first.
pub fn visit_rules<'a>(value: &'a Value, old: Option<&'a Value>, schema: &'a Schema, run: &mut dyn FnMut(RuledNode<'a>)) {
    fn walk<'a>(path: FieldPath, value: &'a Value, old: Option<&'a Value>, schema: &'a Schema, run: &mut dyn FnMut(RuledNode<'a>)) {
        if !schema.rules.is_empty() {
            run(RuledNode { path: path.clone(), value, old, schema, rules: &schema.rules });
        }
        match value {
            Value::Object(map) => {
                for (key, item) in map {
                    let old = corresponding_entry(old, key, schema);
                    if let Some(field) = schema.field(key) {
                        walk(path.child(key), item, old, field.schema(), run);
                    } else if let Additional::Of(inner) = &schema.additional {
                        walk(path.key(key), item, old, inner.get(), run);
                    }
                }
            }
            Value::Array(items) => {
                let Some(inner) = schema.items() else { return };
                for (index, item) in items.iter().enumerate() {
                    walk(path.index(index), item, corresponding_item(old, item, schema), inner, run);
                }
            }
            _ => {}
        }
    }
    walk(FieldPath::nil(), value, old, schema, run);
}

/// The old value of a map's entry; an atomic map has no parts to compare.
fn corresponding_entry<'a>(old: Option<&'a Value>, key: &str, schema: &Schema) -> Option<&'a Value> {
    if schema.map_type == MapType::Atomic {
        return None;
    }
    old?.get(key)
}

/// The old item with the same keys; only lists of type map have items that can be told apart.
fn corresponding_item<'a>(old: Option<&'a Value>, item: &Value, schema: &Schema) -> Option<&'a Value> {
    let ListType::Map(keys) = &schema.list_type else { return None };
    let same = |other: &&Value| keys.iter().all(|key| other.get(&**key) == item.get(&**key));
    old?.as_array()?.iter().find(same)
}

// === Results ===

#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    /// How many checks held; alternatives are compared by it.
    matches: usize,
}

impl Outcome {
    fn fail(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        for error in other.errors {
            self.fail(error);
        }
    }

    /// Merges and counts the check itself.
    fn checked(&mut self, other: Self) {
        self.merge(other);
        self.matches += 1;
    }
}

/// A name like `spec.a` as a path; the root's children come as `.a` from required fields.
fn field_path(name: &str) -> FieldPath {
    let name = name.strip_prefix('.').unwrap_or(name);
    if name.is_empty() { FieldPath::nil() } else { FieldPath::root(name) }
}

/// Errors that carry no field in Kubernetes either.
fn unplaced(message: String) -> FieldError {
    FieldError::invalid(&FieldPath::nil(), "", message)
}

fn invalid(name: &str, value: impl Into<Value>, problem: &str) -> FieldError {
    FieldError::invalid(&field_path(name), value, format!("{name} in body {problem}"))
}

fn wrong_type(name: &str, expected: &str, found: &str) -> FieldError {
    let detail = format!("{name} in body must be of type {expected}: {}", quote(found));
    FieldError::type_invalid(&field_path(name), found, detail)
}

// === The walk ===

fn ratcheted(value: &Value, old: Option<&Value>, schema: &Schema, name: &str) -> Outcome {
    let mut outcome = check(value, old, schema, name);
    if !outcome.errors.is_empty() && old == Some(value) {
        outcome.errors.clear();
    }
    outcome
}

fn check(value: &Value, old: Option<&Value>, schema: &Schema, name: &str) -> Outcome {
    static NO_CHECKS: std::sync::LazyLock<Checks> = std::sync::LazyLock::new(Checks::default);
    let checks = schema.checks.as_deref().unwrap_or(&NO_CHECKS);
    let format = effective_format(schema);
    let mut outcome = Outcome::default();
    if value.is_null() {
        outcome.merge(check_type(value, schema, format, name));
        outcome.merge(check_enumeration(value, checks, name));
        return outcome;
    }
    if schema.kind != Type::Any || schema.int_or_string || format.is_some() {
        outcome.checked(check_type(value, schema, format, name));
    }
    outcome.checked(check_alternatives(value, old, checks, name));
    match value {
        Value::String(text) => {
            outcome.checked(check_text(text, checks, name));
            if let Some(format) = format.filter(|format| is_known_format(format)) {
                outcome.checked(check_format(text, format, name));
            }
        }
        Value::Number(number) => outcome.checked(check_number(number, schema, checks, format, name)),
        Value::Array(items) => outcome.checked(check_list(items, old, schema, checks, name)),
        _ => {}
    }
    outcome.checked(check_enumeration(value, checks, name));
    if let Value::Object(map) = value {
        outcome.checked(check_object(map, old, schema, checks, name));
    }
    outcome.matches += 1;
    outcome
}

/// Formats that do not go with the type, or that nobody knows, are as if not there.
fn effective_format(schema: &Schema) -> Option<&str> {
    let format = schema.format.as_deref()?;
    let known = match schema.kind {
        Type::String | Type::Any => is_known_format(format),
        Type::Integer => matches!(format, "int32" | "int64"),
        Type::Number => matches!(format, "float" | "double"),
        _ => false,
    };
    known.then_some(format)
}

fn check_type(value: &Value, schema: &Schema, format: Option<&str>, name: &str) -> Outcome {
    let expected = if schema.int_or_string { "integer,string" } else { schema.kind.name() };
    let accepts = |kind: Type| schema.kind == kind || (schema.int_or_string && matches!(kind, Type::Integer | Type::String));
    let held = Outcome { errors: Vec::new(), matches: 1 };
    let failed = |expected: &str, found: &str| Outcome { errors: vec![wrong_type(name, expected, found)], matches: 0 };
    let (found, found_format) = match value {
        Value::Null if expected.is_empty() || schema.nullable => return held,
        Value::Null => return failed(expected, "null"),
        Value::Bool(_) => (Type::Boolean, ""),
        Value::String(_) => (Type::String, ""),
        Value::Array(_) => (Type::Array, ""),
        Value::Object(_) => (Type::Object, ""),
        Value::Number(number) if number.is_f64() => (Type::Number, "float64"),
        Value::Number(_) => (Type::Integer, "int64"),
    };
    let integer_as_number = found == Type::Integer && accepts(Type::Number);
    let textual = matches!(found, Type::String | Type::Array);
    if let Some(format) = format {
        if !textual && !accepts(found) && !integer_as_number && format != found_format {
            return failed(format, found_format);
        }
        // A text of a format is the format's business.
        if textual && !accepts(Type::Number) && !accepts(Type::Integer) {
            return held;
        }
    }
    if accepts(found) || integer_as_number { held } else { failed(expected, found.name()) }
}

fn check_alternatives(value: &Value, old: Option<&Value>, checks: &Checks, name: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if !checks.any_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut held = None;
        for schema in &checks.any_of {
            let branch = check(value, old, schema, name);
            if branch.errors.is_empty() {
                held = Some(branch);
                break;
            }
            if best.as_ref().is_none_or(|best| branch.matches > best.matches) {
                best = Some(branch);
            }
        }
        if held.is_none() {
            outcome.fail(unplaced(format!("{} must validate at least one schema (anyOf)", quote(name))));
        }
        if let Some(branch) = held.or(best) {
            outcome.merge(branch);
        }
    }
    if !checks.one_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut first = None;
        let mut valid = 0;
        for schema in &checks.one_of {
            let branch = check(value, old, schema, name);
            if branch.errors.is_empty() {
                valid += 1;
                best = None;
                first = first.or(Some(branch));
            } else if valid == 0 && best.as_ref().is_none_or(|best| branch.matches > best.matches) {
                best = Some(branch);
            }
        }
        if valid == 1 {
            first.into_iter().for_each(|branch| outcome.merge(branch));
        } else {
            let found = if valid == 0 { "none valid".to_owned() } else { format!("{valid} valid alternatives") };
            let quoted = quote(name);
            outcome.fail(unplaced(format!("{quoted} must validate one and only one schema (oneOf). Found {found}")));
            best.into_iter().for_each(|branch| outcome.merge(branch));
        }
    }
    if !checks.all_of.is_empty() {
        let mut valid = 0;
        for schema in &checks.all_of {
            let branch = check(value, old, schema, name);
            valid += usize::from(branch.errors.is_empty());
            outcome.merge(branch);
        }
        if valid != checks.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            outcome.fail(unplaced(format!("{} must validate all the schemas (allOf){none}", quote(name))));
        }
    }
    if let Some(not) = &checks.not
        && check(value, old, not, name).errors.is_empty()
    {
        outcome.fail(unplaced(format!("{} must not validate the schema (not)", quote(name))));
    }
    outcome.matches += 1;
    outcome
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn limit(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The first of length, length, pattern that fails.
fn check_text(text: &str, checks: &Checks, name: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let length = || count(text.chars().count());
    if let Some(longest) = checks.length_max.filter(|longest| length() > *longest) {
        outcome.fail(FieldError::too_long(&field_path(name), limit(longest)));
    } else if let Some(shortest) = checks.length_min.filter(|shortest| length() < *shortest) {
        outcome.fail(invalid(name, text, &format!("should be at least {shortest} chars long")));
    } else if let Some(pattern) = &checks.pattern {
        match pattern.regex() {
            Ok(regex) if regex.is_match(text) => {}
            Ok(_) => outcome.fail(invalid(name, text, &format!("should match '{}'", pattern.text))),
            Err(why) => {
                let problem = format!("should match '{}, but pattern is invalid: {why}'", pattern.text);
                outcome.fail(invalid(name, text, &problem));
            }
        }
    }
    outcome
}

fn check_format(text: &str, format: &str, name: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if !matches_format(format, text) {
        outcome.fail(wrong_type(name, format, text));
    }
    outcome
}

fn check_number(number: &Number, schema: &Schema, checks: &Checks, format: Option<&str>, name: &str) -> Outcome {
    let mut outcome = Outcome { errors: Vec::new(), matches: 1 };
    let float = number.as_f64().unwrap_or_default();
    let integer = number.as_i64();
    let in_range = match (schema.kind, format) {
        (Type::Integer, Some("int32")) => integer.is_some_and(|integer| i32::try_from(integer).is_ok()),
        (Type::Integer, _) => integer.is_some(),
        (Type::Number, Some("float")) => float.abs() <= f64::from(f32::MAX),
        _ => true,
    };
    if !in_range {
        let format = format.map_or_else(|| "(default format)".to_owned(), |format| format!("with format {format}"));
        outcome.fail(unplaced(format!("Checked value must be of type {} {format} in {name}", schema.kind.name())));
    }
    let value = Value::Number(number.clone());
    // Integers are compared as integers, against the bound cut to one, as Go does.
    let bound = |bound: f64| if integer.is_some() { (bound as i64).to_string() } else { go_text::float(bound) };
    let compare = |bound: f64| match integer {
        Some(integer) => integer.cmp(&(bound as i64)),
        None => float.total_cmp(&bound),
    };
    if let Some(factor) = checks.multiple_of {
        let whole = |value: f64| (value - value.round()).abs() < 1e-9 * value.abs().max(1.0);
        let (positive, multiple) = match integer {
            Some(integer) => {
                let factor = factor as i64;
                (factor > 0, factor > 0 && integer % factor == 0)
            }
            None => (factor > 0.0, whole(if factor < 1.0 { 1.0 / factor * float } else { float / factor })),
        };
        if !positive {
            let message = format!("factor MultipleOf declared for {name} must be positive: {}", bound(factor));
            outcome.fail(FieldError::invalid(&field_path(name), value.clone(), message));
        } else if !multiple {
            outcome.fail(invalid(name, value.clone(), &format!("should be a multiple of {}", bound(factor))));
        }
    }
    if let Some(minimum) = checks.minimum {
        let order = compare(minimum);
        if order.is_lt() || (checks.exclusive_minimum && order.is_eq()) {
            let or_equal = if checks.exclusive_minimum { "" } else { " or equal to" };
            let or_equal = if or_equal.is_empty() { "greater than".to_owned() } else { format!("greater than{or_equal}") };
            outcome.fail(invalid(name, value.clone(), &format!("should be {or_equal} {}", bound(minimum))));
        }
    }
    if let Some(maximum) = checks.maximum {
        let order = compare(maximum);
        if order.is_gt() || (checks.exclusive_maximum && order.is_eq()) {
            let relation = if checks.exclusive_maximum { "less than" } else { "less than or equal to" };
            outcome.fail(invalid(name, value, &format!("should be {relation} {}", bound(maximum))));
        }
    }
    outcome
}

fn check_list(items: &[Value], old: Option<&Value>, schema: &Schema, checks: &Checks, name: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(inner) = schema.items() {
        for (index, item) in items.iter().enumerate() {
            let old = corresponding_item(old, item, schema);
            outcome.merge(ratcheted(item, old, inner, &format!("{name}[{index}]")));
        }
    }
    let size = count(items.len());
    if let Some(fewest) = checks.items_min.filter(|fewest| size < *fewest) {
        outcome.fail(invalid(name, size, &format!("should have at least {fewest} items")));
    }
    if let Some(most) = checks.items_max.filter(|most| size > *most) {
        outcome.fail(FieldError::too_many(&field_path(name), items.len(), limit(most)));
    }
    if checks.unique_items {
        let repeated = items.iter().enumerate().any(|(index, item)| items[..index].contains(item));
        if repeated {
            outcome.fail(invalid(name, "", "shouldn't contain duplicates"));
        }
    }
    outcome.matches += 1;
    outcome
}

fn check_enumeration(value: &Value, checks: &Checks, name: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if !checks.enumeration.is_empty() && !checks.enumeration.contains(value) {
        let allowed: Vec<String> = checks
            .enumeration
            .iter()
            .map(|value| value.as_str().map_or_else(|| go_text::json(value), str::to_owned))
            .collect();
        outcome.fail(FieldError::not_supported(&field_path(name), value.clone(), &allowed));
    }
    outcome
}

fn check_object(map: &Map<String, Value>, old: Option<&Value>, schema: &Schema, checks: &Checks, name: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let size = count(map.len());
    if let Some(fewest) = checks.properties_min.filter(|fewest| size < *fewest) {
        outcome.fail(invalid(name, size, &format!("should have at least {fewest} properties")));
    }
    if let Some(most) = checks.properties_max.filter(|most| size > *most) {
        outcome.fail(FieldError::too_many(&field_path(name), map.len(), limit(most)));
    }
    for (key, item) in map.iter().filter(|(key, _)| schema.field(key).is_none()) {
        match &schema.additional {
            Additional::Forbidden => {
                let message = format!("{name}.{key} in body is a forbidden property");
                outcome.fail(FieldError::invalid(&field_path(name), key.as_str(), message));
            }
            Additional::Of(inner) => {
                let old = corresponding_entry(old, key, schema);
                outcome.merge(ratcheted(item, old, inner.get(), &format!("{name}.{key}")));
            }
            _ => {}
        }
    }
    for (key, field) in &schema.properties {
        let Some(item) = map.get(&**key) else { continue };
        let inner = if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
        let type_meta = name.is_empty() && matches!(&**key, "kind" | "apiVersion");
        let old = corresponding_entry(old, key, schema).filter(|_| !type_meta);
        outcome.merge(ratcheted(item, old, field.schema(), &inner));
    }
    for key in schema.required.iter().filter(|key| !map.contains_key(&***key)) {
        outcome.fail(FieldError::required(&field_path(&format!("{name}.{key}")), ""));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::super::from_openapi;
    use super::*;
    use serde_json::json;

    fn errors(schema: Value, value: Value) -> Vec<String> {
        let schema = from_openapi(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": schema}}}}));
        validate(&json!({"spec": {"a": value}}), &schema).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_keyword_has_kubernetes_message() {
        let cases: Vec<(Value, Value, Vec<&str>)> = vec![
            (json!({"type": "integer"}), json!("x"), vec![r#"spec.a: Invalid value: "string": spec.a in body must be of type integer: "string""#]),
            (json!({"type": "integer"}), json!(1.5), vec![r#"spec.a: Invalid value: "number": spec.a in body must be of type integer: "number""#, r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.a"#]),
            (json!({"type": "string"}), json!(null), vec![r#"spec.a: Invalid value: "null": spec.a in body must be of type string: "null""#]),
            (json!({"type": "string", "nullable": true}), json!(null), vec![]),
            (json!({"type": "number"}), json!(3), vec![]),
            (json!({"x-kubernetes-int-or-string": true}), json!("5%"), vec![]),
            (json!({"x-kubernetes-int-or-string": true}), json!(true), vec![r#"spec.a: Invalid value: "boolean": spec.a in body must be of type integer,string: "boolean""#]),
            (json!({"type": "string", "format": "date-time"}), json!(5), vec![r#"spec.a: Invalid value: "int64": spec.a in body must be of type date-time: "int64""#]),
            (json!({"type": "string", "format": "date-time"}), json!("x"), vec![r#"spec.a: Invalid value: "x": spec.a in body must be of type date-time: "x""#]),
            (json!({"type": "string", "format": "unheard-of"}), json!("x"), vec![]),
            (json!({"type": "integer", "format": "int32"}), json!(3_000_000_000_i64), vec![r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.a"#]),
            (json!({"type": "string", "maxLength": 2}), json!("abc"), vec!["spec.a: Too long: may not be more than 2 bytes"]),
            (json!({"type": "string", "minLength": 2}), json!("é"), vec![r#"spec.a: Invalid value: "é": spec.a in body should be at least 2 chars long"#]),
            (json!({"type": "string", "pattern": "^x$"}), json!("y"), vec![r#"spec.a: Invalid value: "y": spec.a in body should match '^x$'"#]),
            (json!({"type": "string", "enum": ["a", "b"]}), json!("c"), vec![r#"spec.a: Unsupported value: "c": supported values: "a", "b""#]),
            (json!({"type": "integer", "enum": [1]}), json!(2), vec![r#"spec.a: Unsupported value: 2: supported values: "1""#]),
            (json!({"type": "integer", "minimum": 1}), json!(0), vec!["spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1"]),
            (json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}), json!(1), vec!["spec.a: Invalid value: 1: spec.a in body should be greater than 1"]),
            (json!({"type": "number", "maximum": 1.5}), json!(1.75), vec!["spec.a: Invalid value: 1.75: spec.a in body should be less than or equal to 1.5"]),
            (json!({"type": "integer", "maximum": 2, "exclusiveMaximum": true}), json!(2), vec!["spec.a: Invalid value: 2: spec.a in body should be less than 2"]),
            (json!({"type": "integer", "multipleOf": 3}), json!(4), vec!["spec.a: Invalid value: 4: spec.a in body should be a multiple of 3"]),
            (json!({"type": "number", "multipleOf": 0.1}), json!(0.3), vec![]),
            (json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}), json!(["x", "y"]), vec!["spec.a: Too many: 2: must have at most 1 item"]),
            (json!({"type": "array", "items": {"type": "string"}, "minItems": 1}), json!([]), vec!["spec.a: Invalid value: 0: spec.a in body should have at least 1 items"]),
            (json!({"type": "array", "items": {"type": "integer"}}), json!([1, "x"]), vec![r#"spec.a[1]: Invalid value: "string": spec.a[1] in body must be of type integer: "string""#]),
            (json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}), json!(["x", "x"]), vec![r#"spec.a: Invalid value: "": spec.a in body shouldn't contain duplicates"#]),
            (json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}), json!({"x": "1", "y": "2"}), vec!["spec.a: Too many: 2: must have at most 1 item"]),
            (json!({"type": "object", "minProperties": 1}), json!({}), vec!["spec.a: Invalid value: 0: spec.a in body should have at least 1 properties"]),
            (json!({"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}}), json!({}), vec!["spec.a.b: Required value"]),
            (json!({"type": "object", "additionalProperties": {"type": "string"}}), json!({"k": 1}), vec![r#"spec.a.k: Invalid value: "integer": spec.a.k in body must be of type string: "integer""#]),
            (json!({"type": "integer", "not": {"minimum": 5}}), json!(6), vec![r#"<nil>: Invalid value: "": "spec.a" must not validate the schema (not)"#]),
            (json!({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}), json!(3), vec![r#"<nil>: Invalid value: "": "spec.a" must validate at least one schema (anyOf)"#, "spec.a: Invalid value: 3: spec.a in body should be greater than or equal to 5"]),
            (json!({"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 1}]}), json!(3), vec![r#"<nil>: Invalid value: "": "spec.a" must validate one and only one schema (oneOf). Found none valid"#, "spec.a: Invalid value: 3: spec.a in body should be greater than or equal to 5"]),
            (json!({"type": "integer", "oneOf": [{"minimum": 1}, {"minimum": 2}]}), json!(3), vec![r#"<nil>: Invalid value: "": "spec.a" must validate one and only one schema (oneOf). Found 2 valid alternatives"#]),
            (json!({"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 9}]}), json!(3), vec!["spec.a: Invalid value: 3: spec.a in body should be greater than or equal to 5", r#"<nil>: Invalid value: "": "spec.a" must validate all the schemas (allOf)"#]),
        ];
        for (schema, value, expected) in cases {
            assert_eq!(errors(schema.clone(), value.clone()), expected, "{schema} {value}");
        }
    }

    #[test]
    fn the_closest_alternative_is_reported() {
        let schema = json!({"type": "object", "properties": {"t": {"type": "string"}, "x": {"type": "integer"}}, "oneOf": [
            {"properties": {"t": {"enum": ["a"]}}, "required": ["t"]},
            {"properties": {"t": {"enum": ["b"]}, "x": {"minimum": 1}}, "required": ["t", "x"]}
        ]});
        let found = errors(schema, json!({"t": "b", "x": 0}));
        assert_eq!(found[1], "spec.a.x: Invalid value: 0: spec.a.x in body should be greater than or equal to 1");
    }

    #[test]
    fn unchanged_values_do_not_fail_an_update() {
        let schema = from_openapi(&json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["r"], "properties": {
            "r": {"type": "string"},
            "a": {"type": "string", "maxLength": 1}, "b": {"type": "string", "maxLength": 1},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "minimum": 1}}}},
            "atomic": {"type": "array", "items": {"type": "integer", "minimum": 1}}
        }}}}));
        let check = |old: Value, new: Value| -> Vec<String> {
            validate_update(&json!({"spec": new}), &json!({"spec": old}), &schema).iter().map(ToString::to_string).collect()
        };
        assert_eq!(check(json!({"a": "long", "b": "x", "r": "r"}), json!({"a": "long", "b": "longer", "r": "r"})), ["spec.b: Too long: may not be more than 1 bytes".replace("bytes", "byte")]);
        assert_eq!(check(json!({"r": "r", "list": [{"k": "a", "v": 0}]}), json!({"r": "r", "list": [{"k": "b", "v": 0}, {"k": "a", "v": 0}]})), ["spec.list[0].v: Invalid value: 0: spec.list[0].v in body should be greater than or equal to 1"]);
        assert_eq!(check(json!({"r": "r", "atomic": [0]}), json!({"r": "r", "atomic": [0]})), Vec::<String>::new());
        assert_eq!(check(json!({"r": "r", "atomic": [0]}), json!({"r": "r", "atomic": [0, 1]})).len(), 1);
        assert_eq!(check(json!({"a": "x"}), json!({"a": "y"})), ["spec.r: Required value"]);
    }

    #[test]
    fn rules_are_visited_with_what_they_replace() {
        let schema = from_openapi(&json!({"type": "object", "x-kubernetes-validations": [{"rule": "true"}], "properties": {
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "reason": "FieldValueForbidden"}]}}}}}}));
        let new = json!({"list": [{"k": "b", "v": 2}, {"k": "a", "v": 1}]});
        let old = json!({"list": [{"k": "a", "v": 7}]});
        let mut seen = Vec::new();
        visit_rules(&new, Some(&old), &schema, &mut |node| seen.push((node.path.to_string(), node.value.clone(), node.old.cloned(), node.rules[0].rule.clone())));
        assert_eq!(seen[0].0, "<nil>");
        assert_eq!(seen[1], ("list[0].v".to_owned(), json!(2), None, "self > 0".to_owned()));
        assert_eq!(seen[2], ("list[1].v".to_owned(), json!(1), Some(json!(7)), "self > 0".to_owned()));
        let blocked = validate(&json!({"list": "x"}), &schema);
        assert!(blocks_rules(&blocked));
        assert!(rules_not_checked().to_string().starts_with("<nil>: Invalid value: null: some validation rules were not checked"));
    }
}
