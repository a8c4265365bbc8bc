//! A client of Kubernetes APIs: one untyped client, and a decoder for each kind.
//!
//! The names are those of kube-rs, whose `kube-core` has the requests and the types: [`Client`], [`Api`], [`watcher`]. Requests,
//! lists and watches are of JSON values, and compiled once; a kind adds one decoder, from a value (decision 0091). A server
//! in the same process is called directly; another one is found by a kubeconfig, as kubectl does ([`Config`]).

mod api_of_kind;
mod body;
mod client;
mod config;
mod error;
mod exec_plugin;
mod kubeconfig;
pub mod object_json;
mod remote;
mod watch_of_kind;
pub mod watcher;

pub use api_of_kind::Api;
pub use body::Body;
pub use client::Client;
pub use config::Config;
pub use error::{ConfigError, Error, Result};
pub use kube_core as core;
pub use kube_core::{Resource, ResourceExt};
pub use kubeconfig::Kubeconfig;
pub use remote::Connection;
pub use watch_of_kind::watch_kind;

/// Parameters and results of requests.
pub mod api {
    pub use kube_core::{
        ObjectList, ObjectMeta, TypeMeta, WatchEvent,
        params::{
            DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions,
            PropagationPolicy, WatchParams,
        },
    };
}
