//! Aggregation of API servers, after Kubernetes' kube-aggregator. An APIService says which server serves a group
//! version: this one, or an extension API server behind a Service.
//!
//! Modules form layers; each imports only those above it in this list:
//!
//! ```text
//! api_service     APIService objects
//! priorities      the order of groups and versions
//! registration    APIServices that the server registers for its own group versions
//! routing         Services and EndpointSlices, and the address behind them
//! availability    the Available condition
//! identity        the user of a request, in headers of the front proxy
//! client          connections to extension API servers
//! proxy           requests that are sent on
//! discovery       discovery documents of extension API servers
//! open_api        OpenAPI documents of extension API servers
//! ```
//!
//! Nothing here touches the store. Whatever an extension API server sends is bounded in bytes and in time, and parsed
//! before it is merged with anything else.

pub mod api_service;
pub mod availability;
pub mod client;
pub mod discovery;
pub mod identity;
pub mod open_api;
pub mod priorities;
pub mod proxy;
pub mod registration;
pub mod routing;

pub use api_service::{ApiService, BackendKey, Managed};
