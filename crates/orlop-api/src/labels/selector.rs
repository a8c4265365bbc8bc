//! Label selectors: conjunctions of requirements.

use crate::field_error::{self, FieldError, FieldPath};
use crate::names;
use serde_json::{Map, Value};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// A requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, without duplicates.
    values: Vec<String>,
}

impl Requirement {
    /// Creates a requirement and validates its key, operator and values.
    pub fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, String> {
        let mut errors = Vec::new();
        let key_problems = names::qualified_name(key);
        if !key_problems.is_empty() {
            errors.push(FieldError::invalid(&FieldPath::root("key"), key, key_problems.join("; ")));
        }
        let path = FieldPath::root("values");
        let complaint = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(complaint) = complaint {
            errors.push(FieldError::invalid(&path, values.clone(), complaint));
        }
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (index, value) in values.iter().enumerate() {
                if value.parse::<i64>().is_err() {
                    let complaint = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.push(FieldError::invalid(&path.index(index), value.as_str(), complaint));
                }
            }
        }
        for (index, value) in values.iter().enumerate() {
            let problems = names::label_value(value);
            if !problems.is_empty() {
                let path = path.index(index).key(key);
                errors.push(FieldError::invalid(&path, value.as_str(), problems.join("; ")));
            }
        }
        if !errors.is_empty() {
            return Err(field_error::aggregate(&errors));
        }
        values.sort();
        values.dedup();
        Ok(Self { key: key.to_owned(), operator, values })
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    pub fn matches(&self, label: Option<&str>) -> bool {
        let has = |label: &str| self.values.iter().any(|value| value == label);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => label.is_some_and(has),
            Operator::NotIn | Operator::NotEquals => !label.is_some_and(has),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let integer = |text: &str| text.parse::<i64>().ok();
                match (label.and_then(integer), self.values.first().and_then(|value| integer(value))) {
                    (Some(label), Some(bound)) if self.operator == Operator::GreaterThan => label > bound,
                    (Some(label), Some(bound)) => label < bound,
                    _ => false,
                }
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.join(",");
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

/// Label selector. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Sorted by key.
    requirements: Vec<Requirement>,
    /// Matches nothing, as a null `LabelSelector`.
    nothing: bool,
}

impl Selector {
    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    pub fn everything() -> Self {
        Self::default()
    }

    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// Converts a `LabelSelector` object: null matches nothing, an empty one everything.
    pub fn from_label_selector(selector: &Value) -> Result<Self, String> {
        let Some(object) = selector.as_object() else { return Ok(Self::nothing()) };
        let mut requirements = Vec::new();
        for (key, value) in object.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key, Operator::Equals, vec![value])?);
        }
        for expression in object.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
            let operator = match text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(format!(
                        "{} is not a valid label selector operator",
                        crate::go_text::quote(other)
                    ));
                }
            };
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            requirements.push(Requirement::new(text("key"), operator, values)?);
        }
        Ok(Self::new(requirements))
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Returns whether the selector matches every object.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        !self.nothing
            && self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }

    /// Returns whether the selector matches an object's `metadata.labels`.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches(
            object.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(Value::as_object),
        )
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}
