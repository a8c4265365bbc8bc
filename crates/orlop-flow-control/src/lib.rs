//! API Priority and Fairness: which requests execute now, which wait, and which are rejected.
//!
//! A request is *classified* by the first FlowSchema that matches it. The schema names a priority level and splits its
//! requests into *flows*, by user or by namespace. A level has a number of *seats*, of which a request occupies as many
//! as its work is estimated at. A request without free seats waits in one of the level's queues, or is rejected.
//!
//! - Queues: shuffle sharding deals each flow a hand of them, so that one flow cannot fill the queues of all others.
//!   The next request is that of the queue with the least virtual finish time: queues progress equally in seat-seconds.
//! - Seats: the server's are divided by the levels' shares. Every ten seconds levels lend each other what they do not
//!   use, within their limits.
//!
//! Modules, each of which imports only those above it:
//!
//! ```text
//! seat_seconds, clock            units of work; the time
//! dealer                         shuffle sharding
//! estimate, watches, statistics  the seats of a request
//! integrator, histogram          measures over time
//! retry_after, rejection         the delay that rejected clients are told; reasons
//! level_metrics                  counters of one level
//! queue_set                      seats and fair queues of one level; no lock, no waiting
//! level                          a queue set with a lock, and requests that wait for it
//! allocation                     division of the server's seats
//! configuration                  FlowSchemas and PriorityLevelConfigurations, decoded
//! books                          levels and their seats
//! controller                     classification, and levels as they are configured
//! dump, metrics                  what is in force, for people and for Prometheus
//! ```
//!
//! Nothing here does I/O or spawns a task, and the clock is injected. All but the names of flows is as in Kubernetes,
//! whose `pkg/util/flowcontrol` defines the terms.

mod allocation;
mod books;
mod clock;
mod configuration;
mod controller;
mod dealer;
mod dump;
mod estimate;
mod histogram;
mod integrator;
mod level;
mod level_metrics;
mod metrics;
mod queue_set;
mod rejection;
mod retry_after;
mod seat_seconds;
mod statistics;
mod watches;

pub use clock::{Clock, ManualClock, SystemClock};
pub use configuration::{FlowSchema, PriorityLevel};
pub use controller::{Classified, Controller, DanglingUpdate};
pub use dump::{dump_priority_levels, dump_queues, dump_requests};
pub use estimate::{Estimator, ListWork, WorkEstimate};
pub use level::{Description, Seats, Started, Ticket};
pub use metrics::Collected;
pub use rejection::{RejectReason, Rejected};
pub use statistics::ListStatistics;
pub use watches::{Watched, Watches};
