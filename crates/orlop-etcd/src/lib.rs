//! etcd's v3 API on the store: what etcdctl, any etcd client and a kube-apiserver talk to.
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
//! let answer = client.kv.put(put).await?.into_inner();
//! assert_eq!(answer.header.unwrap().revision, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! Each service has its file: [`kv`], [`watch`], [`lease`], [`maintenance`], [`cluster`], [`auth`]. They
//! translate: a request is checked as etcd checks it ([`check`]), put to the store in the store's own words,
//! and the answer, or the store's error ([`errors`]), is put in etcd's. What a revision is, what a
//! transaction may see and in which order events come is the store's business and is decided there.
//!
//! Invariants: nothing here knows SQL; no value that a peer sends can end the process; every stream and
//! queue is bounded; every answer's header names a revision that is durable.

mod alarms;
mod auth;
mod call;
mod check;
mod client;
mod cluster;
mod compactor;
mod convert;
pub mod copy;
mod errors;
mod header;
mod http;
mod kv;
mod lease;
mod maintenance;
mod node;
pub mod pb;
mod range;
mod server;
pub mod snapshot;
mod txn;
mod watch;

pub use client::{Client, ClientTls, ConnectError};
pub use node::Options;
pub use server::Server;
