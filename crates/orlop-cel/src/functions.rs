//! Function declarations: overload signatures for the checker, implementations for the evaluator.
//!
//! A function is a name with overloads; an overload is a list of parameter types, a result type and a Rust function.
//! The evaluator makes sure that arguments fit the parameter types before it calls, so an implementation only
//! pattern-matches what it declared. Operators have signatures but no implementation: the evaluator knows them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use orlop_regex::Regex;

use crate::error::EvalError;
use crate::types::Type;
use crate::value::Value;

/// The result of a function.
pub type EvalResult<'a> = Result<Value<'a>, EvalError>;

/// Context of a built-in call, beside its arguments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallContext<'p> {
    /// The second argument as a regular expression, where it was a constant.
    pub(crate) regex: Option<&'p Regex>,
}

/// A built-in implementation.
pub(crate) type Builtin = for<'a> fn(CallContext<'_>, &[Value<'a>]) -> EvalResult<'a>;

/// An implementation given by the user of this crate.
pub(crate) type Custom = Arc<dyn for<'a> Fn(&[Value<'a>]) -> EvalResult<'a> + Send + Sync>;

#[derive(Clone)]
pub(crate) enum Implementation {
    /// The evaluator has a node for it.
    Operator,
    Builtin(Builtin),
    Custom(Custom),
}

impl fmt::Debug for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operator => "Operator",
            Self::Builtin(_) => "Builtin",
            Self::Custom(_) => "Custom",
        })
    }
}

/// One signature of a function.
#[derive(Clone, Debug)]
pub(crate) struct Overload {
    pub(crate) id: String,
    /// Called as `x.f()`; the first parameter is then `x`.
    pub(crate) member: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    pub(crate) implementation: Implementation,
}

/// All signatures under one name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) overloads: Vec<Overload>,
}

/// The functions of an environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    by_name: HashMap<String, Arc<Function>>,
}

impl Functions {
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Function>> {
        self.by_name.get(name)
    }

    pub(crate) fn add(&mut self, name: &str, overload: Overload) {
        let function = self
            .by_name
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Function { name: name.to_owned(), overloads: Vec::new() }));
        Arc::make_mut(function).overloads.push(overload);
    }

    /// Declares `name(params…)`.
    pub(crate) fn global<const N: usize>(
        &mut self,
        name: &str,
        id: &str,
        params: [Type; N],
        result: Type,
        run: Builtin,
    ) {
        self.declare(name, id, false, params.into(), result, Implementation::Builtin(run));
    }

    /// Declares `params[0].name(params[1], …)`.
    pub(crate) fn member<const N: usize>(
        &mut self,
        name: &str,
        id: &str,
        params: [Type; N],
        result: Type,
        run: Builtin,
    ) {
        self.declare(name, id, true, params.into(), result, Implementation::Builtin(run));
    }

    /// Declares an operator's signature.
    pub(crate) fn operator<const N: usize>(&mut self, name: &str, id: &str, params: [Type; N], result: Type) {
        self.declare(name, id, false, params.into(), result, Implementation::Operator);
    }

    fn declare(
        &mut self,
        name: &str,
        id: &str,
        member: bool,
        params: Vec<Type>,
        result: Type,
        implementation: Implementation,
    ) {
        self.add(name, Overload { id: id.to_owned(), member, params, result, implementation });
    }
}
