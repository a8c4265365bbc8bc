//! The parts without I/O: SimpleSchema, graphs, generated CRDs.

mod build;
mod simple_schema;
