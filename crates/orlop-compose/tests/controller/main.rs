//! The controller against a server of its own.

mod definitions;
mod graphs;
mod harness;
mod lifecycle;
mod ownership;
