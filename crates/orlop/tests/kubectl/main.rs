//! kubectl, unmodified, against `orlop serve`.

mod access;
mod admission;
mod aggregation;
mod apply;
mod compose;
mod credentials;
mod custom;
mod deletion;
mod editing;
// The webhook that the server's own tests call.
#[path = "../../../orlop-server/tests/support/hook.rs"]
mod hook;
mod kinds;
mod nodes;
mod objects;
mod output;
mod policies;
mod rollout;
#[path = "../support/mod.rs"]
mod support;
mod webhooks;
mod workloads;
