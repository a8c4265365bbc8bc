//! Runner of the test tables.

// Each test binary uses its share of these.
#![allow(dead_code, reason = "each test file uses a part of it")]

use orlop_cel::{Activation, Budget, Env, Library, Type};

/// Everything this crate knows, and the variables the tables use.
pub(crate) fn everything() -> Env {
    let builder = Library::ALL.into_iter().fold(Env::builder(), orlop_cel::EnvBuilder::library);
    builder.variable("x", Type::Int).variable("d", Type::Dyn).mutation_types().build()
}

/// Evaluates an expression without variables and shows what comes out.
pub(crate) fn outcome(env: &Env, expression: &str) -> String {
    let program = match env.compile(expression) {
        Ok(program) => program,
        Err(errors) => return format!("does not compile: {errors}"),
    };
    let activation = Activation::new();
    match program.evaluate(&activation, &mut Budget::unlimited()) {
        Ok(value) => format!("{value}"),
        Err(error) => format!("error: {error}"),
    }
}

/// Shows what failed, if anything did.
pub(crate) fn assert_none(failures: &[String], rows: usize) {
    assert!(failures.is_empty(), "{} of {rows} rows failed:\n{}", failures.len(), failures.join("\n"));
}

/// Every expression must be true.
pub(crate) fn all_true(env: &Env, rows: &[&str]) {
    let failures: Vec<String> = rows
        .iter()
        .map(|row| (row, outcome(env, row)))
        .filter(|(_, outcome)| outcome != "true")
        .map(|(row, outcome)| format!("{row}\n    gave {outcome}"))
        .collect();
    assert_none(&failures, rows.len());
}

/// Every expression must fail with this text.
pub(crate) fn all_fail(env: &Env, rows: &[(&str, &str)]) {
    let failures: Vec<String> = rows
        .iter()
        .map(|(row, expected)| (row, format!("error: {expected}"), outcome(env, row)))
        .filter(|(_, expected, outcome)| outcome != expected)
        .map(|(row, expected, outcome)| format!("{row}\n    expected {expected}\n    gave     {outcome}"))
        .collect();
    assert_none(&failures, rows.len());
}

/// Every expression must be refused at this line and column with this message.
pub(crate) fn all_refused(env: &Env, rows: &[(&str, u32, u32, &str)]) {
    let mut failures = Vec::new();
    for (row, line, column, message) in rows {
        match env.compile(row) {
            Ok(program) => failures.push(format!("{row}\n    compiles: {program:?}")),
            Err(errors) => {
                let first = &errors.issues()[0];
                let found = (first.location.line, first.location.column + 1, first.message.as_str());
                if found != (*line, *column, *message) {
                    failures.push(format!(
                        "{row}\n    expected {line}:{column}: {message}\n    gave     {found:?}"
                    ));
                }
            }
        }
    }
    assert_none(&failures, rows.len());
}
