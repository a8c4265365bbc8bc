//! Validation of the expressions of admission policies: they are compiled when they are written.

use std::collections::HashSet;

use orlop_api::field_error::{FieldError, FieldPath};
use orlop_cel::{AdmissionVariables, ExpressionCompiler, ExpressionOrigin, ReturnType, is_reserved};
use serde_json::Value;

use crate::accessors::{list, present, text};

/// Compiles the expressions of one policy.
pub(crate) struct PolicyExpressions<'a> {
    compiler: ExpressionCompiler,
    /// Expressions of the stored policy, which may use libraries that new ones may not.
    stored: HashSet<&'a str>,
    has_params: bool,
}

impl<'a> PolicyExpressions<'a> {
    /// Returns the compiler of a policy's spec. `old` is the stored policy's spec. Expressions may reference
    /// `variables` only if `composed`.
    pub(crate) fn new(spec: &Value, old: Option<&'a Value>, composed: bool) -> Self {
        let compiler = match composed {
            true => ExpressionCompiler::with_variables(ExpressionOrigin::Written),
            false => ExpressionCompiler::new(ExpressionOrigin::Written),
        };
        let stored = old.into_iter().flat_map(stored_expressions).collect();
        Self { compiler, stored, has_params: present(spec, "/paramKind").is_some() }
    }

    /// Declarations of validations, variables and audit annotations.
    pub(crate) fn declared(&self) -> AdmissionVariables {
        AdmissionVariables { params: self.has_params, authorizer: true, patch_types: false }
    }

    /// Validates the variables of a spec, and declares them for the expressions that follow.
    pub(crate) fn validate_variables(&mut self, spec: &Value, path: &FieldPath) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (index, variable) in list(spec, "/variables").iter().enumerate() {
            let path = path.child("variables").index(index);
            let (name, expression) = (text(variable, "/name"), text(variable, "/expression"));
            if name.trim().is_empty() {
                errors.push(FieldError::required(&path.child("name"), "name is not specified"));
            } else if !is_identifier(name) {
                let detail = "must be a valid CEL identifier";
                errors.push(FieldError::invalid(&path.child("name"), name, detail));
            }
            let at = path.child("expression");
            if expression.trim().is_empty() {
                errors.push(FieldError::required(&at, "expression is not specified"));
                continue;
            }
            self.compiler.set_origin(self.origin(expression));
            let compiled = self.compiler.compile_variable(name, expression, self.declared());
            errors.extend(compiled.err().map(|detail| FieldError::invalid(&at, expression, detail)));
        }
        errors
    }

    /// Validates an expression of a type. `shown` is the text that the error shows.
    pub(crate) fn validate(
        &mut self,
        expression: &str,
        shown: &str,
        declared: AdmissionVariables,
        returns: ReturnType,
        path: &FieldPath,
    ) -> Option<FieldError> {
        self.compiler.set_origin(self.origin(shown));
        let compiled = self.compiler.compile(expression, declared, returns);
        compiled.err().map(|detail| FieldError::invalid(path, shown, detail))
    }

    fn origin(&self, expression: &str) -> ExpressionOrigin {
        match self.stored.contains(expression) {
            true => ExpressionOrigin::Stored,
            false => ExpressionOrigin::Written,
        }
    }
}

/// The expressions of a policy's spec.
fn stored_expressions(spec: &Value) -> impl Iterator<Item = &str> {
    const FIELDS: [(&str, &[&str]); 4] = [
        ("/variables", &["/expression"]),
        ("/validations", &["/expression", "/messageExpression"]),
        ("/auditAnnotations", &["/valueExpression"]),
        ("/mutations", &["/applyConfiguration/expression", "/jsonPatch/expression"]),
    ];
    FIELDS.into_iter().flat_map(move |(items, fields)| {
        list(spec, items).iter().flat_map(move |item| fields.iter().map(move |field| text(item, field)))
    })
}

/// Returns true if a name is an identifier of CEL.
fn is_identifier(name: &str) -> bool {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    name.chars().all(is_word)
        && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
        && !is_reserved(name)
}
