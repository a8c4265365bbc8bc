//! The controllers against simulators of AWS from PyPI, behind a proxy that injects faults.
//!
//! Moto and ministack run on loopback, as children of this process that end with it. Neither throttles, times out or
//! returns stale reads, so a proxy of our own does.

mod accounts;
mod bridge;
mod bridge_domains;
mod cases;
mod composed;
mod domains;
mod faults;
mod fields;
mod grants;
mod harness;
mod inventory;
mod kills;
mod kinds;
mod lives;
mod metadata;
mod permissions;
mod plays;
mod problems;
mod process;
mod proxy;
mod semantics;
mod simulators;
mod stage;
mod starts;
mod tables;
