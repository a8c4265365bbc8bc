//! HTTP without Kubernetes' objects: bodies, content negotiation, query parameters, websockets, responses.

pub mod body;
pub(crate) mod compression;
pub(crate) mod held;
pub mod negotiation;
pub use orlop_api::query;
pub(crate) mod request_body;
pub(crate) mod response;
pub(crate) mod stream_budget;
pub mod warnings;
pub(crate) mod watch_body;
pub(crate) mod websocket;
