//! The controller against a server of its own.

mod acceptance;
mod bad_input;
mod definitions;
mod example;
mod extensions;
mod faults;
mod graphs;
mod harness;
mod kills;
mod lifecycle;
mod nested;
mod ownership;
mod tenancy;
