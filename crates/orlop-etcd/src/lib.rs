//! etcd's v3 API on the store, for etcdctl, any etcd client and kube-apiserver.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use orlop_etcd::{Client, Options, Server, pb::etcdserverpb::PutRequest};
//! use orlop_store::{Config, Endpoint, Store};
//!
//! let store = Store::open(Config::new(Endpoint::Memory)).await?;
//! let server = Server::new(store, Options::default()).await?;
//! let mut client = Client::in_process(&server).await?;
//! let put = PutRequest { key: "greeting".into(), value: "hello".into(), ..PutRequest::default() };
//! let response = client.kv.put(put).await?.into_inner();
//! assert_eq!(response.header.unwrap().revision, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! Each service has its file: [`kv`], [`watch`], [`lease`], [`maintenance`], [`cluster`], [`auth`], [`lock`], [`election`];
//! [`gateway`] offers them as JSON. A service validates a
//! request as etcd does ([`validate`]), converts it to the store's types ([`convert`], [`range`], [`txn`]), and converts
//! the result, or the error ([`errors`]), back. Revisions, isolation and event order are the store's.
//!
//! Invariants: nothing here knows SQL; no input can end the process; every stream, queue and response is bounded; a
//! request is cancelled when its client disconnects; the revision in every header is durable.

mod alarms;
mod auth;
mod candidates;
mod client;
mod cluster;
mod compactor;
mod convert;
pub mod copy;
mod dispatch;
mod election;
mod errors;
mod gateway;
mod header;
mod http;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod node;
pub mod pb;
mod range;
mod server;
pub mod snapshot;
mod txn;
mod validate;
mod watch;

pub use client::{Client, ClientTls, ConnectError};
pub use node::Options;
pub use server::Server;
