//! The Common Expression Language (CEL) as Kubernetes speaks it.
//!
//! ```
//! use orlop_cel::{Activation, Budget, Env, Schema};
//! use serde_json::json;
//!
//! let schema = json!({"type": "object", "properties": {
//!     "replicas": {"type": "integer"}, "min": {"type": "integer"}}});
//! let schema = Schema::from_openapi("Widget", &schema, false).ok_or("nothing to see")?;
//! let env = Env::kubernetes(34).schema("self", &schema).build();
//!
//! let rule = env.compile("self.replicas >= self.min")?;
//! assert_eq!(rule.estimate().max, 5);
//!
//! let widget = json!({"replicas": 3, "min": 5});
//! let mut budget = Budget::new(1_000_000);
//! let verdict = rule.evaluate(&Activation::new().json("self", &widget), &mut budget)?;
//! assert_eq!(verdict.as_bool(), Some(false));
//! assert_eq!(budget.used(), 5);
//!
//! let error = env.compile("self.replicas + 'x'").unwrap_err();
//! assert_eq!(error.to_string(), "\
//! ERROR: <input>:1:15: found no matching overload for '_+_' applied to '(int, string)'
//!  | self.replicas + 'x'
//!  | ..............^");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Pipeline
//!
//! text → `lexer` → `parser` and `macros` → [`ast`] → `checker` → `planner` → [`Program`] → `evaluator` → [`Value`]
//!
//! An [`Env`] declares variables, functions and types. Compilation reports all static errors and estimates the cost. A
//! [`Program`] is immutable and shared; evaluation borrows the JSON document and reads only the fields that the
//! expression selects.
//!
//! # Invariants
//!
//! - No I/O, no clock, no global state.
//! - No expression or document makes this crate panic or overflow the stack: depth is bounded when
//!   parsing ([`DEPTH_MAX`]), and so is everything that walks the tree afterwards. The depth of a
//!   *document* is bounded by its decoder.
//! - Time and memory are bounded by the [`Budget`] and by the size of the document.
//! - Regular expressions run in linear time.
//!
//! # Not supported
//!
//! Protocol buffer messages, enums and `Any`; partial evaluation with unknowns. Other differences from
//! cel-go are listed in `docs/cel.md`.

mod activation;
mod admission;
pub mod ast;
mod checker;
mod composition;
mod cost;
mod env;
mod error;
mod escape;
mod evaluator;
mod expression_compiler;
mod functions;
mod lexer;
mod library;
mod literal;
mod number;
mod parser;
mod planner;
mod program;
mod schema;
mod source;
mod time;
mod types;
mod unparser;
mod value;
mod zone;

pub use activation::{Activation, LazyVariable};
pub use admission::{AdmissionVariables, ExpressionOrigin};
pub use composition::{Composed, Composition};
pub use cost::{Budget, CostEstimate, Sizes};
pub use env::{Env, EnvBuilder};
pub use error::{CompileErrors, EvalError, Issue};
pub use escape::{escape, is_reserved, unescape};
pub use expression_compiler::{
    EXPRESSION_COST_MAX, ExpressionCompiler, MATCH_CONDITIONS_COST_MAX, POLICY_COST_MAX, ReturnType,
};
pub use functions::EvalResult;
pub use library::Library;
pub use library::authorizer::{
    AUTHORIZER, AccessAttributes, Authorizer, Decision, RESOURCE_CHECK, ResourceAttributes, ServiceAccount,
    authorizer_value, request_resource_value,
};
pub use library::opaque::Opaque;
pub use parser::DEPTH_MAX;
pub use program::Program;
pub use schema::{ListType, REQUEST_BYTES_MAX, Schema, SchemaSpec};
pub use source::Location;
pub use time::{Duration, Timestamp};
pub use types::{MessageType, Param, Type};
pub use value::{Key, List, Map, MessageValue, Text, Value};
pub use zone::is_time_zone;
