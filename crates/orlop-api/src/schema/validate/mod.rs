//! Schema validation of values, with Kubernetes' messages.
//!
//! Every check runs even after another failed, in this order: type, alternatives,
//! text, format, number, list, enumeration, object. Alternatives (`anyOf`, `oneOf`)
//! report the branch with the most matches.
//!
//! Updates are ratcheted: errors of a node that equals its
//! correlated old value are dropped.

mod rules;

pub use rules::{blocks_rules, rules_skipped_error};

use super::formats::{is_enforced_format, is_known_format, matches_format};
use super::{AdditionalProperties, CorrelatedItems, Schema, Type, ValueValidation, is_unchanged};
use crate::field_error::{FieldError, FieldPath};
use crate::go_text::{self, quote};
use serde_json::{Map, Number, Value};

/// Validates a value that is created.
pub fn validate(value: &Value, schema: &Schema) -> Vec<FieldError> {
    check(value, None, schema, "").errors
}

/// Validates a value that replaces an old one.
pub fn validate_update(value: &Value, old: &Value, schema: &Schema) -> Vec<FieldError> {
    ratcheted(value, Some(old), schema, "").errors
}

/// Returns the old value of a field or map entry.
fn corresponding_entry<'a>(old: Option<&'a Value>, key: &str) -> Option<&'a Value> {
    old?.get(key)
}

// === Results ===

#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    /// Number of checks that passed; `oneOf` and `anyOf` report the branch with the most.
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

/// Validates that no property without a default is null, unless its schema is nullable.
///
/// Creates drop such nulls when they decode the object; apply does not decode it, so there they are type errors.
pub fn validate_nulls(value: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    collect_nulls(value, schema, "", &mut errors);
    errors
}

fn collect_nulls(value: &Value, schema: &Schema, name: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, item) in map {
                let Some(field) = schema.field(key) else {
                    if let Some(inner) = schema.additional_properties.schema() {
                        collect_nulls(item, inner, &format!("{name}.{key}"), errors);
                    }
                    continue;
                };
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                if item.is_null() && field.default().is_none() {
                    errors.extend(check_type(item, field.schema(), None, &name).errors);
                } else {
                    collect_nulls(item, field.schema(), &name, errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.items() else { return };
            for (index, item) in items.iter().enumerate() {
                collect_nulls(item, inner, &format!("{name}[{index}]"), errors);
            }
        }
        _ => {}
    }
}

/// Converts a name like `spec.a` to a field path. Required fields name the root's children `.a`.
fn field_path(name: &str) -> FieldPath {
    let name = name.strip_prefix('.').unwrap_or(name);
    if name.is_empty() { FieldPath::nil() } else { FieldPath::root(name) }
}

/// Returns an error without a field, as in Kubernetes.
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
    if !outcome.errors.is_empty() && old.is_some_and(|old| old == value || is_unchanged(value, old, schema)) {
        outcome.errors.clear();
    }
    outcome
}

fn check(value: &Value, old: Option<&Value>, schema: &Schema, name: &str) -> Outcome {
    static NO_VALIDATION: std::sync::LazyLock<ValueValidation> =
        std::sync::LazyLock::new(ValueValidation::default);
    let validation = schema.value_validation.as_deref().unwrap_or(&NO_VALIDATION);
    let format = effective_format(schema);
    let mut outcome = Outcome::default();
    if value.is_null() {
        outcome.merge(check_type(value, schema, format, name));
        outcome.merge(check_enumeration(value, validation, name));
        return outcome;
    }
    if schema.kind != Type::Any || schema.int_or_string || format.is_some() {
        outcome.checked(check_type(value, schema, format, name));
    }
    outcome.checked(check_alternatives(value, old, validation, name));
    match value {
        Value::String(text) => {
            outcome.checked(check_text(text, validation, name));
            if let Some(format) = format.filter(|format| is_known_format(format)) {
                outcome.checked(check_format(text, format, name));
            }
        }
        Value::Number(number) => outcome.checked(check_number(number, schema, validation, format, name)),
        Value::Array(items) => outcome.checked(check_list(items, old, schema, validation, name)),
        _ => {}
    }
    outcome.checked(check_enumeration(value, validation, name));
    if let Value::Object(map) = value {
        outcome.checked(check_object(map, old, schema, validation, name));
    }
    outcome.matches += 1;
    outcome
}

/// Returns the format if it applies to the type. Other formats are ignored.
fn effective_format(schema: &Schema) -> Option<&str> {
    let format = schema.format.as_deref()?;
    is_enforced_format(format, schema.kind.name()).then_some(format)
}

fn check_type(value: &Value, schema: &Schema, format: Option<&str>, name: &str) -> Outcome {
    let expected = if schema.int_or_string { "integer,string" } else { schema.kind.name() };
    let accepts = |kind: Type| {
        schema.kind == kind || (schema.int_or_string && matches!(kind, Type::Integer | Type::String))
    };
    let held = Outcome { errors: Vec::new(), matches: 1 };
    let failed =
        |expected: &str, found: &str| Outcome { errors: vec![wrong_type(name, expected, found)], matches: 0 };
    let (found, found_format) = match value {
        Value::Null if expected.is_empty() || schema.nullable => return held,
        Value::Null => return failed(expected, "null"),
        Value::Bool(_) => (Type::Boolean, ""),
        Value::String(_) => (Type::String, ""),
        Value::Array(_) => (Type::Array, ""),
        Value::Object(_) => (Type::Object, ""),
        Value::Number(number) if number.is_f64() => {
            // A whole number is an integer, however it is written.
            let whole = number.as_f64().is_some_and(is_whole);
            (if whole && accepts(Type::Integer) { Type::Integer } else { Type::Number }, "float64")
        }
        Value::Number(_) => (Type::Integer, "int64"),
    };
    let integer_as_number = found == Type::Integer && accepts(Type::Number);
    let textual = matches!(found, Type::String | Type::Array);
    if let Some(format) = format {
        if !textual && !accepts(found) && !integer_as_number && format != found_format {
            return failed(format, found_format);
        }
        // Strings with a format are validated by the format.
        if textual && !accepts(Type::Number) && !accepts(Type::Integer) {
            return held;
        }
    }
    if accepts(found) || integer_as_number { held } else { failed(expected, found.name()) }
}

fn check_alternatives(
    value: &Value,
    old: Option<&Value>,
    validation: &ValueValidation,
    name: &str,
) -> Outcome {
    let mut outcome = Outcome::default();
    if !validation.any_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut held = None;
        for schema in &validation.any_of {
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
    if !validation.one_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut first = None;
        let mut valid = 0;
        for schema in &validation.one_of {
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
            let found =
                if valid == 0 { "none valid".to_owned() } else { format!("{valid} valid alternatives") };
            let quoted = quote(name);
            outcome.fail(unplaced(format!(
                "{quoted} must validate one and only one schema (oneOf). Found {found}"
            )));
            best.into_iter().for_each(|branch| outcome.merge(branch));
        }
    }
    if !validation.all_of.is_empty() {
        let mut valid = 0;
        for schema in &validation.all_of {
            let branch = check(value, old, schema, name);
            valid += usize::from(branch.errors.is_empty());
            outcome.merge(branch);
        }
        if valid != validation.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            outcome.fail(unplaced(format!("{} must validate all the schemas (allOf){none}", quote(name))));
        }
    }
    if let Some(not) = &validation.not
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

/// Checks maxLength, minLength and pattern, and reports the first failure.
fn check_text(text: &str, validation: &ValueValidation, name: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let length = || count(text.chars().count());
    if let Some(longest) = validation.length_max.filter(|longest| length() > *longest) {
        outcome.fail(FieldError::too_long(&field_path(name), limit(longest)));
    } else if let Some(shortest) = validation.length_min.filter(|shortest| length() < *shortest) {
        outcome.fail(invalid(name, text, &format!("should be at least {shortest} chars long")));
    } else if let Some(pattern) = &validation.pattern {
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

fn check_number(
    number: &Number,
    schema: &Schema,
    validation: &ValueValidation,
    format: Option<&str>,
    name: &str,
) -> Outcome {
    let mut outcome = Outcome { errors: Vec::new(), matches: 1 };
    let float = number.as_f64().unwrap_or_default();
    let out_of_range = |integer: Option<i64>, float: f64, what: &str| {
        // A float that is written without a fraction is read as an integer.
        let exact =
            (float.fract() == 0.0 && float.abs() < 9_223_372_036_854_775_808.0).then_some(float as i64);
        let integer = integer.or(exact);
        let in_range = match (schema.kind, format) {
            (Type::Integer, Some("int32")) => integer.is_some_and(|integer| i32::try_from(integer).is_ok()),
            (Type::Integer, _) => integer.is_some(),
            (Type::Number, Some("float")) => float.abs() <= f64::from(f32::MAX),
            _ => true,
        };
        let format =
            format.map_or_else(|| "(default format)".to_owned(), |format| format!("with format {format}"));
        let kind = schema.kind.name();
        (!in_range).then(|| unplaced(format!("{what} value must be of type {kind} {format} in {name}")))
    };
    if let Some(error) = out_of_range(number.as_i64(), float, "Checked") {
        outcome.fail(error);
    }
    let value = Value::Number(number.clone());
    // Integers are compared with the truncated bound, as in Go; a bound that is not an integer fails every value.
    let integer_against = |bound: f64, what: &str, outcome: &mut Outcome| {
        let problem = out_of_range(None, bound, what);
        let sound = problem.is_none();
        problem.into_iter().for_each(|error| outcome.fail(error));
        number.as_i64().filter(|_| sound)
    };
    let text = |integer: Option<i64>, bound: f64| {
        if integer.is_some() { (bound as i64).to_string() } else { go_text::float(bound) }
    };
    let order = |integer: Option<i64>, bound: f64| match integer {
        Some(integer) => integer.cmp(&(bound as i64)),
        None => float.total_cmp(&bound),
    };
    if let Some(factor) = validation.multiple_of {
        let integer = integer_against(factor, "MultipleOf", &mut outcome);
        let (positive, multiple) = match integer {
            Some(integer) => {
                let factor = factor as i64;
                (factor > 0, factor > 0 && integer % factor == 0)
            }
            None => {
                (factor > 0.0, is_whole(if factor < 1.0 { 1.0 / factor * float } else { float / factor }))
            }
        };
        let factor = text(integer, factor);
        if !positive {
            let message = format!("factor MultipleOf declared for {name} must be positive: {factor}");
            outcome.fail(FieldError::invalid_printed(&field_path(name), factor.clone(), message));
        } else if !multiple {
            outcome.fail(invalid(name, value.clone(), &format!("should be a multiple of {factor}")));
        }
    }
    if let Some(minimum) = validation.minimum {
        let integer = integer_against(minimum, "Minimum boundary", &mut outcome);
        let order = order(integer, minimum);
        if order.is_lt() || (validation.exclusive_minimum && order.is_eq()) {
            let relation =
                if validation.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            let minimum = text(integer, minimum);
            outcome.fail(invalid(name, value.clone(), &format!("should be {relation} {minimum}")));
        }
    }
    if let Some(maximum) = validation.maximum {
        let integer = integer_against(maximum, "Maximum boundary", &mut outcome);
        let order = order(integer, maximum);
        if order.is_gt() || (validation.exclusive_maximum && order.is_eq()) {
            let relation = if validation.exclusive_maximum { "less than" } else { "less than or equal to" };
            let maximum = text(integer, maximum);
            outcome.fail(invalid(name, value, &format!("should be {relation} {maximum}")));
        }
    }
    outcome
}

/// Returns whether a float is an integer, within rounding errors.
fn is_whole(float: f64) -> bool {
    const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
    if float.is_nan() || float.abs() > EXACT_MAX {
        return false;
    }
    let cut = float.trunc();
    cut == float || (float > 0.0 && cut != 0.0 && (float - cut) / (float + cut) < 1e-9)
}

fn check_list(
    items: &[Value],
    old: Option<&Value>,
    schema: &Schema,
    validation: &ValueValidation,
    name: &str,
) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(inner) = schema.items() {
        let old = CorrelatedItems::new(old, schema);
        for (index, item) in items.iter().enumerate() {
            outcome.merge(ratcheted(item, old.get(item), inner, &format!("{name}[{index}]")));
        }
    }
    let size = count(items.len());
    if let Some(fewest) = validation.items_min.filter(|fewest| size < *fewest) {
        outcome.fail(invalid(name, size, &format!("should have at least {fewest} items")));
    }
    if let Some(most) = validation.items_max.filter(|most| size > *most) {
        outcome.fail(FieldError::too_many(&field_path(name), items.len(), limit(most)));
    }
    if validation.unique_items {
        let repeated = items.iter().enumerate().any(|(index, item)| items[..index].contains(item));
        if repeated {
            outcome.fail(invalid(name, "", "shouldn't contain duplicates"));
        }
    }
    outcome.matches += 1;
    outcome
}

fn check_enumeration(value: &Value, validation: &ValueValidation, name: &str) -> Outcome {
    let mut outcome = Outcome::default();
    // Null never matches, even if listed; 1 and 1.0 are equal.
    let same = |allowed: &Value| match (allowed, value) {
        (_, Value::Null) => false,
        (Value::Number(allowed), Value::Number(value)) => allowed.as_f64() == value.as_f64(),
        (allowed, value) => allowed == value,
    };
    if !validation.enumeration.is_empty() && !validation.enumeration.iter().any(same) {
        let allowed: Vec<String> = validation
            .enumeration
            .iter()
            .map(|value| value.as_str().map_or_else(|| go_text::json(value), str::to_owned))
            .collect();
        outcome.fail(FieldError::not_supported(&field_path(name), value.clone(), &allowed));
    }
    outcome
}

fn check_object(
    map: &Map<String, Value>,
    old: Option<&Value>,
    schema: &Schema,
    validation: &ValueValidation,
    name: &str,
) -> Outcome {
    let mut outcome = Outcome::default();
    let size = count(map.len());
    if let Some(fewest) = validation.properties_min.filter(|fewest| size < *fewest) {
        outcome.fail(invalid(name, size, &format!("should have at least {fewest} properties")));
    }
    if let Some(most) = validation.properties_max.filter(|most| size > *most) {
        outcome.fail(FieldError::too_many(&field_path(name), map.len(), limit(most)));
    }
    for (key, item) in map.iter().filter(|(key, _)| schema.field(key).is_none()) {
        match &schema.additional_properties {
            AdditionalProperties::Forbidden => {
                let message = format!("{name}.{key} in body is a forbidden property");
                outcome.fail(FieldError::invalid(&field_path(name), key.as_str(), message));
            }
            AdditionalProperties::Of(inner) => {
                let old = corresponding_entry(old, key);
                outcome.merge(ratcheted(item, old, inner.get(), &format!("{name}.{key}")));
            }
            _ => {}
        }
    }
    for (key, field) in &schema.properties {
        let Some(item) = map.get(&**key) else { continue };
        let inner = if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
        let type_meta = name.is_empty() && matches!(&**key, "kind" | "apiVersion");
        let old = corresponding_entry(old, key).filter(|_| !type_meta);
        outcome.merge(ratcheted(item, old, field.schema(), &inner));
    }
    for key in schema.required.iter().filter(|key| !map.contains_key(&***key)) {
        outcome.fail(FieldError::required(&field_path(&format!("{name}.{key}")), ""));
    }
    outcome
}

#[cfg(test)]
mod tests;
