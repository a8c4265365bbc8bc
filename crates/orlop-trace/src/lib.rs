//! OpenTelemetry traces of requests, exported over OTLP (gRPC).
//!
//! Modules form layers; each imports only those above it in this list:
//!
//! ```text
//! config     the TracingConfiguration file
//! otlp       messages of the OTLP trace service
//! context    trace and span ids, the traceparent header
//! exporter   batches of spans to a collector
//! span       spans, and the current span of a task
//! ```
//!
//! The current span is a task-local value. Without one, which is always so when tracing is off, [`in_span`] runs its work
//! and does nothing else.
//!
//! The messages are written by hand: of the OpenTelemetry crates only a small part would be used, and they take longer to
//! build than the rest of the server's network stack.

mod config;
mod context;
mod exporter;
mod otlp;
mod span;

pub use config::{ConfigError, TracingConfig};
pub use context::SpanContext;
pub use exporter::Exporter;
pub use span::{Active, Span, Tracer, Value, current, in_span};
