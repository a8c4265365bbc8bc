//! A Kubernetes API server on the store.
//!
//! Modules form layers; each imports only those above it in this list:
//!
//! ```text
//! object, version          system fields of objects; the version that is served
//! http                     bodies, content negotiation, queries, websockets, responses
//! request                  options of verbs
//! registry                 Kind, Kinds; encoding and index terms of stored objects
//! storage                  objects in the store: keys, selection, namespaces, allocation
//! auth                     the cluster's identity, objects that credentials depend on
//! rbac, node_graph         authorizers over roles and bindings, and over what is on nodes, which follow the store
//! flow_control             configuration of flow control, which follows the store
//! webhook                  calls to webhooks
//! definitions              CustomResourceDefinitions and the kinds they define
//! admission                objects that admission plugins read, which follow the store
//! openapi                  OpenAPI documents
//! proxy                    requests that nodes, pods and services answer
//! aggregation              APIServices, and requests that extension API servers answer
//! cluster                  one cluster as a value
//! authentication           the authenticators of a cluster
//! authorization            the cluster's authorizers by the names of their modes
//! metrics                  request metrics, object counts
//! endpoints                verbs, subresources, reviews, discovery, health, routes
//! definition_controllers   informer, finalizer and naming of definitions
//! rekey                    rewriting of objects that would be encrypted otherwise now
//! filters                  authentication, authorization, intake, flow control, deadline, audit
//! chain                    the filters of a request, in order
//! aggregation_controllers  registration, availability and documents of APIServices
//! serve, bootstrap         connections; the objects of every cluster
//! ```
//!
//! A request goes through [`chain`], which runs the filters in order, to `endpoints::routes`, which finds its
//! kind in the [`registry`] and calls the verb; the verb runs the kind's strategy and reads or writes
//! [`storage`]. Built-in kinds, custom resources and kinds of a library's user share every verb.
//!
//! Nothing here touches SQL, and nothing is global: a [`cluster::Cluster`] is a value.

pub mod admission;
mod aggregation;
mod aggregation_controllers;
pub mod auth;
pub mod authentication;
pub mod authorization;
pub mod bootstrap;
pub mod chain;
pub mod cluster;
mod definition_controllers;
mod definitions;
pub mod endpoints;
mod filters;
mod flow_control;
pub mod http;
mod metrics;
mod node_graph;
pub mod object;
mod openapi;
pub mod proxy;
mod rbac;
pub mod registry;
pub mod rekey;
pub mod request;
pub mod serve;
pub mod storage;
pub mod version;
mod webhook;

pub use orlop_kinds::table;

pub use auth::{TokenDigest, TokenFileError, Tokens, User};
pub use filters::hygiene::{BadHygiene, Hygiene};
pub use flow_control::FlowControlOptions;
pub use metrics::RegisterMetrics;
