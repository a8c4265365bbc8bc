//! What the services share.

use std::{sync::Arc, time::Duration};

use orlop_store::{Revision, Store};
use tokio::sync::watch;

use crate::{alarms::Alarms, header::Identity, pb::etcdserverpb::ResponseHeader};

/// How the endpoint behaves. The defaults are etcd's, except where they say so.
#[derive(Clone, Debug)]
pub struct Options {
    /// The member's name.
    pub name: String,
    /// Where clients reach it, as told to those who ask for the members.
    pub client_urls: Vec<String>,
    /// The etcd version to claim. Clients decide by it what they may use.
    pub version: String,
    /// A quiet client is asked for a sign of life this often, and dropped if it gives none within twenty
    /// seconds, or as long again if that is less.
    pub keep_alive: Duration,
    /// Requests under way on one connection; more wait, or are refused if the client does not know how to.
    pub max_streams: u32,
    /// Bytes of a request that writes.
    pub max_request_bytes: usize,
    /// Operations in a transaction.
    pub max_txn_ops: usize,
    /// Watches on one stream.
    pub max_watches: usize,
    /// How often an idle watch that asked for it is told how far history has come. etcd's is ten minutes;
    /// this one is what the API server's watch cache wants.
    pub progress_interval: Duration,
    /// How often history is compacted by the clock; `None` leaves it to clients, as etcd and the API server
    /// have it.
    pub compact_interval: Option<Duration>,
    /// How many revisions stay readable then, whatever their age.
    pub compact_min_retain: Revision,
    /// The bound on the database that the store was opened with, to report it; 0 for none.
    pub quota_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "orlop".into(),
            client_urls: Vec::new(),
            version: "3.6.11".into(),
            keep_alive: Duration::from_secs(60),
            max_streams: 16_384,
            max_request_bytes: 3 << 19,
            max_txn_ops: 128,
            max_watches: 16_384,
            progress_interval: Duration::from_secs(5),
            compact_interval: None,
            compact_min_retain: 1000,
            quota_bytes: 0,
        }
    }
}

/// The store and everything that all services answer with.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) store: Store,
    pub(crate) identity: Identity,
    pub(crate) options: Options,
    pub(crate) alarms: Alarms,
    stopping: watch::Sender<bool>,
}

impl Node {
    pub(crate) async fn new(store: Store, options: Options) -> orlop_store::Result<Arc<Self>> {
        let identity = Identity::load(&store).await?;
        let alarms = Alarms::load(&store).await?;
        Ok(Arc::new(Self { store, identity, options, alarms, stopping: watch::Sender::new(false) }))
    }

    pub(crate) fn header(&self, revision: Revision) -> Option<ResponseHeader> {
        self.identity.header(revision)
    }

    /// The header of an answer that is not about a revision.
    pub(crate) async fn header_now(&self) -> Result<Option<ResponseHeader>, tonic::Status> {
        Ok(self.header(self.store.revision().await.map_err(crate::errors::status)?))
    }

    /// Tells every stream to end.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Returns once the server is to stop.
    pub(crate) async fn stopped(self: Arc<Self>) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}
