//! Activations: variable bindings of one evaluation.

use std::fmt;

use serde_json::Value as Json;

use crate::error::EvalError;
use crate::schema::Schema;
use crate::types::Type;
use crate::value::Value;

/// A variable that is computed when an expression references it. Closures that return an owned value implement it;
/// a borrowing value needs a type to borrow from.
pub trait LazyVariable {
    /// Computes the variable's value. Called for each reference, so an expensive one caches its value.
    fn compute(&self) -> Result<Value<'_>, EvalError>;
}

impl<F: Fn() -> Result<Value<'static>, EvalError>> LazyVariable for F {
    fn compute(&self) -> Result<Value<'_>, EvalError> {
        self()
    }
}

/// Variable bindings of one evaluation. An unbound variable is an error only if the expression references it.
#[derive(Clone, Debug, Default)]
pub struct Activation<'a> {
    bindings: Vec<(&'a str, Binding<'a>)>,
}

#[derive(Clone)]
enum Binding<'a> {
    Json(&'a Json),
    OptionalJson(Option<&'a Json>),
    Value(Value<'a>),
    Lazy(&'a dyn LazyVariable),
}

impl fmt::Debug for Binding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(_) => f.write_str("Json"),
            Self::OptionalJson(json) => write!(f, "OptionalJson({})", json.is_some()),
            Self::Value(value) => write!(f, "Value({value:?})"),
            Self::Lazy(_) => f.write_str("Lazy"),
        }
    }
}

impl<'a> Activation<'a> {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds a variable to JSON, read as the environment's schema for it says.
    #[must_use]
    pub fn json(self, name: &'a str, json: &'a Json) -> Self {
        self.with(name, Binding::Json(json))
    }

    /// Binds a variable to an optional with JSON, or to `optional.none()`.
    #[must_use]
    pub fn optional_json(self, name: &'a str, json: Option<&'a Json>) -> Self {
        self.with(name, Binding::OptionalJson(json))
    }

    /// Binds a variable to a value.
    #[must_use]
    pub fn value(self, name: &'a str, value: Value<'a>) -> Self {
        self.with(name, Binding::Value(value))
    }

    /// Binds a variable to a value that is computed when it is needed.
    #[must_use]
    pub fn lazy(self, name: &'a str, variable: &'a dyn LazyVariable) -> Self {
        self.with(name, Binding::Lazy(variable))
    }

    fn with(mut self, name: &'a str, binding: Binding<'a>) -> Self {
        self.bindings.push((name, binding));
        self
    }

    /// The JSON a variable is bound to, if that is what it is bound to.
    pub(crate) fn bound_json(&self, name: &str) -> Option<&'a Json> {
        match self.bindings.iter().rev().find(|(bound, _)| *bound == name) {
            Some((_, Binding::Json(json))) => Some(json),
            _ => None,
        }
    }

    pub(crate) fn resolve(
        &self,
        name: &str,
        declared: &Type,
        schema: Option<&'a Schema>,
    ) -> Result<Value<'a>, EvalError> {
        let Some((_, binding)) = self.bindings.iter().rev().find(|(bound, _)| *bound == name) else {
            return Err(EvalError::Failed(format!("no such attribute(s): {name}")));
        };
        match binding {
            Binding::Json(json) if matches!(declared, Type::Optional(_)) => {
                Value::from_json(json, schema).map(Value::some)
            }
            Binding::Json(json) => Value::from_json(json, schema),
            Binding::OptionalJson(None) => Ok(Value::none()),
            Binding::OptionalJson(Some(json)) => Value::from_json(json, schema).map(Value::some),
            Binding::Value(value) => Ok(value.clone()),
            Binding::Lazy(variable) => variable.compute(),
        }
    }
}
