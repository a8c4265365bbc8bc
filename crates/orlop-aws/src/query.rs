//! The part of jq that names a value: paths, iteration, `select` with a comparison, and pipes between them.
//!
//! `.status.endpoint`, `.metadata.labels["a.b"]`, `.status.items[-1]`,
//! `.status.conditions[] | select(.type == "Ready") | .status`.

use serde_json::Value;

/// A parsed query.
#[derive(Debug, PartialEq)]
pub(crate) struct Query {
    filters: Vec<Filter>,
}

#[derive(Debug, PartialEq)]
enum Filter {
    Path(Vec<Step>),
    /// Passes values on whose path has this value, or has not.
    Select {
        path: Vec<Step>,
        equal: bool,
        literal: Value,
    },
}

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    /// Counted from the end if negative.
    Item(i64),
    Iterate,
}

/// A value was indexed with what does not fit its type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TypeMismatch;

impl Query {
    /// Parses a query; `None` if it is malformed, or jq beyond this part.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let filters = split_pipes(text).into_iter().map(|filter| Filter::parse(filter.trim()));
        Some(Self { filters: filters.collect::<Option<_>>()? })
    }

    /// Returns the first result; `None` if there is none, or it is null.
    pub(crate) fn first<'a>(&self, value: &'a Value) -> Result<Option<&'a Value>, TypeMismatch> {
        let mut values = vec![value];
        for filter in &self.filters {
            values = filter.apply(&values)?;
        }
        Ok(values.first().copied().filter(|value| !value.is_null()))
    }
}

/// Splits at pipes outside of quotes.
fn split_pipes(text: &str) -> Vec<&str> {
    let mut quoted = false;
    text.split(|c| {
        if c == '"' {
            quoted = !quoted;
        }
        c == '|' && !quoted
    })
    .collect()
}

impl Filter {
    fn parse(text: &str) -> Option<Self> {
        let Some(condition) = text.strip_prefix("select(").and_then(|rest| rest.strip_suffix(')')) else {
            return parse_path(text).map(Self::Path);
        };
        let (path, equal, literal) = match condition.split_once("!=") {
            Some((path, literal)) => (path, false, literal),
            None => condition.split_once("==").map(|(path, literal)| (path, true, literal))?,
        };
        let literal = serde_json::from_str(literal.trim()).ok()?;
        Some(Self::Select { path: parse_path(path.trim())?, equal, literal })
    }

    fn apply<'a>(&self, values: &[&'a Value]) -> Result<Vec<&'a Value>, TypeMismatch> {
        match self {
            Self::Path(steps) => walk(values, steps),
            Self::Select { path, equal, literal } => {
                let mut selected = Vec::new();
                for value in values {
                    let found = walk(&[*value], path)?;
                    if found.iter().any(|found| (*found == literal) == *equal) {
                        selected.push(*value);
                    }
                }
                Ok(selected)
            }
        }
    }
}

fn walk<'a>(values: &[&'a Value], steps: &[Step]) -> Result<Vec<&'a Value>, TypeMismatch> {
    let mut values = values.to_vec();
    for step in steps {
        let mut next = Vec::new();
        for value in values {
            step.apply(value, &mut next)?;
        }
        values = next;
    }
    Ok(values)
}

impl Step {
    fn apply<'a>(&self, value: &'a Value, next: &mut Vec<&'a Value>) -> Result<(), TypeMismatch> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => next.push(fields.get(name).unwrap_or(&Value::Null)),
            (Self::Item(index), Value::Array(items)) => {
                let from_end = usize::try_from(index.unsigned_abs()).ok();
                let index = match index.is_negative() {
                    true => from_end.and_then(|back| items.len().checked_sub(back)),
                    false => from_end,
                };
                next.push(index.and_then(|index| items.get(index)).unwrap_or(&Value::Null));
            }
            (Self::Iterate, Value::Array(items)) => next.extend(items),
            (Self::Iterate, Value::Object(fields)) => next.extend(fields.values()),
            (Self::Field(_) | Self::Item(_), Value::Null) => next.push(value),
            _ => return Err(TypeMismatch),
        }
        Ok(())
    }
}

/// Parses a path: `.a.b[0]["c.d"][]`.
fn parse_path(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text.strip_prefix('.')?;
    loop {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if rest.is_empty() {
            return Some(steps);
        }
        if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = match inner.strip_prefix('"') {
                Some(quoted) => {
                    let (name, after) = quoted.split_once("\"]")?;
                    (Step::Field(name.to_owned()), after)
                }
                None => {
                    let (index, after) = inner.split_once(']')?;
                    let step = if index.is_empty() { Step::Iterate } else { Step::Item(index.parse().ok()?) };
                    (step, after)
                }
            };
            steps.push(step);
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let name = &rest[..end];
            if !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
                return None;
            }
            steps.push(Step::Field(name.to_owned()));
            rest = &rest[end..];
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn first(text: &str) -> Option<Value> {
        let object = json!({"metadata": {"labels": {"a.b": "c"}}, "status": {"items": [{"n": 1}, {"n": 2}],
            "conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]}});
        let query = Query::parse(text).unwrap_or_else(|| panic!("{text} does not parse"));
        query.first(&object).unwrap_or_else(|_| panic!("{text} does not fit")).cloned()
    }

    #[test]
    fn paths_name_fields_items_and_quoted_keys() {
        assert_eq!(first(".status.items[0].n"), Some(json!(1)));
        assert_eq!(first(".status.items[-1].n"), Some(json!(2)));
        assert_eq!(first(".metadata.labels[\"a.b\"]"), Some(json!("c")));
        assert_eq!(first(".status.items[7].n"), None);
        assert_eq!(first(".status.nothing.below"), None);
    }

    #[test]
    fn iteration_and_select_take_the_first_that_fits() {
        let query = ".status.conditions[] | select(.type == \"Ready\") | .status";
        assert_eq!(first(query), Some(json!("True")));
        assert_eq!(
            first(".status.conditions[] | select(.type != \"Ready\") | .status"),
            Some(json!("False"))
        );
        assert_eq!(first(".status.items[] | select(.n == 2) | .n"), Some(json!(2)));
        assert_eq!(first(".status.items[] | select(.n == 9) | .n"), None);
    }

    #[test]
    fn malformed_queries_and_types_that_do_not_fit_are_refused() {
        for text in ["status", ".a | b", ".a[", ".a[x]", "select(.a)", "", ".a |", "keys"] {
            assert_eq!(Query::parse(text), None, "{text}");
        }
        let query = Query::parse(".status.state.deeper").expect("a query");
        assert_eq!(query.first(&json!({"status": {"state": "Active"}})), Err(TypeMismatch));
    }
}
