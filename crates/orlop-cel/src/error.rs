//! Compile errors and evaluation errors.
//!
//! [`CompileErrors`] are syntax and type errors. They print as in cel-go (`ERROR: <input>:1:6: …` with the line and a
//! caret), because users see them through `kubectl`. [`EvalError`] depends on the data: a missing key, a division by
//! zero, an exhausted budget. Only [`EvalError::Failed`] is absorbed by `&&`, `||`, `all` and `exists`; the others end
//! the evaluation.

use std::fmt;

use crate::source::{Location, Source};

/// At most this many errors are reported for one expression.
const REPORTED_MAX: usize = 100;

/// One compile error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Location in the source; line 0 if it has none.
    pub location: Location,
    /// Error message.
    pub message: String,
}

/// All compile errors of one expression, with its source.
#[derive(Clone, Debug)]
pub struct CompileErrors {
    source: Source,
    issues: Vec<Issue>,
}

impl CompileErrors {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, issues: Vec::new() }
    }

    pub(crate) fn report(&mut self, offset: u32, message: impl Into<String>) {
        let location = self.source.location(offset);
        self.issues.push(Issue { location, message: message.into() });
    }

    /// Reports an error without a location, such as an expression that is too long.
    pub(crate) fn report_nowhere(&mut self, message: impl Into<String>) {
        self.issues.push(Issue { location: Location { line: 0, column: 0 }, message: message.into() });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.issues.is_empty()
    }

    pub(crate) fn into_result<T>(mut self, value: T) -> Result<T, Self> {
        if self.issues.is_empty() {
            return Ok(value);
        }
        self.issues.sort_by_key(|issue| issue.location);
        Err(self)
    }

    /// Returns the errors in source order.
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

impl fmt::Display for CompileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.issues.iter().take(REPORTED_MAX).enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            show(f, &self.source, issue)?;
        }
        match self.issues.len().checked_sub(REPORTED_MAX) {
            Some(more) if more > 0 => write!(f, "\n{more} more errors were truncated"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for CompileErrors {}

fn show(f: &mut fmt::Formatter<'_>, source: &Source, issue: &Issue) -> fmt::Result {
    let Location { line, column } = issue.location;
    if line == 0 {
        return write!(f, "ERROR: <input>:-1:0: {}", issue.message);
    }
    if source.text().is_empty() {
        return write!(f, "ERROR: <input>:{line}:0: {}", issue.message);
    }
    write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.message)?;
    let Some(snippet) = source.snippet(line) else { return Ok(()) };
    write!(f, "\n | {}\n | ", snippet.replace('\t', " "))?;
    let mut rest = snippet.chars();
    for c in rest.by_ref().take(column as usize) {
        // Wide characters get a wide dot, so that the caret stays below its column.
        f.write_str(if c.is_ascii() { "." } else { "\u{ff0e}" })?;
    }
    f.write_str(if rest.next().is_none_or(|c| c.is_ascii()) { "^" } else { "\u{ff3e}" })
}

/// Error of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvalError {
    /// The expression failed on this data: `no such key: x`, `division by zero`, …
    Failed(String),
    /// The cost budget ran out.
    CostLimitExceeded,
    /// The interruption hook said stop.
    Interrupted,
}

impl EvalError {
    /// An ordinary failure with this text.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::failed("no such overload")
    }

    pub(crate) fn no_such_key(key: impl fmt::Display) -> Self {
        Self::Failed(format!("no such key: {key}"))
    }

    /// Returns whether `&&`, `||` and the quantifiers absorb this error.
    pub(crate) fn is_absorbable(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(message) => f.write_str(message),
            Self::CostLimitExceeded => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::Interrupted => f.write_str("operation interrupted"),
        }
    }
}

impl std::error::Error for EvalError {}
