//! The controller against a server of its own.

mod definitions;
mod example;
mod faults;
mod graphs;
mod harness;
mod lifecycle;
mod ownership;
