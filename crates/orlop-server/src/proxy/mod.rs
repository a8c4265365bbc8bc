//! Requests that another server answers: a node, a pod or a service. Responses are streamed back, and upgraded connections
//! are joined.

mod forward;
mod links;
mod tls;
mod tunnel;

pub(crate) use forward::{Backend, Forwarded, forward, join};
pub(crate) use links::Links;
pub use tls::NodeTls;
pub(crate) use tunnel::tunnel;
