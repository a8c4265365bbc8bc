//! The operator against an API server in this process, and a database in this process.

mod cluster;
mod collections;
mod leader;
mod manifests;
mod servers;
