//! Calls of functions.

use super::Evaluator;
use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Implementation};
use crate::planner::{CallNode, Candidate};
use crate::value::Value;

impl<'a> Evaluator<'_, '_, 'a> {
    pub(super) fn call(&mut self, node: &'a CallNode) -> EvalResult<'a> {
        let mut args = Vec::with_capacity(node.args.len());
        for arg in &node.args {
            match self.eval(arg) {
                Ok(value) => args.push(value),
                Err(error) => {
                    self.charge(1)?;
                    return Err(error);
                }
            }
        }
        let Some(candidate) = node.candidates.iter().find(|candidate| candidate.fits(&args)) else {
            self.charge(1)?;
            return Err(no_such_overload(&node.function, &args));
        };
        let result = match &candidate.implementation {
            Implementation::Builtin(run) => run(CallContext { regex: node.regex.as_ref() }, &args),
            Implementation::Custom(run) => run(&args),
            Implementation::Operator => Err(no_such_overload(&node.function, &args)),
        };
        self.charge(candidate.rule.charge(&args, result.as_ref().ok()))?;
        if let Ok(value) = &result {
            self.budget.allocate(value.owned_bytes())?;
        }
        result
    }
}

impl Candidate {
    fn fits(&self, args: &[Value<'_>]) -> bool {
        self.params.len() == args.len() && self.params.iter().zip(args).all(|(ty, value)| value.fits(ty))
    }
}

fn no_such_overload(function: &str, args: &[Value<'_>]) -> EvalError {
    let types: Vec<String> = args.iter().map(|arg| arg.type_of().runtime_name().to_owned()).collect();
    EvalError::Failed(format!("no such overload: {function}({})", types.join(", ")))
}
