//! State shared by all services.

use std::{sync::Arc, time::Duration};

use orlop_store::{Revision, Store};
use tokio::sync::watch;

use crate::{alarms::Alarms, header::Identity, pb::etcdserverpb::ResponseHeader};

/// Settings of an endpoint. Defaults are etcd's unless noted.
#[derive(Clone, Debug)]
pub struct Options {
    /// The member's name.
    pub name: String,
    /// Client URLs in the member list.
    pub client_urls: Vec<String>,
    /// Emulated etcd version. Clients derive features from it.
    pub version: String,
    /// Interval of HTTP/2 PINGs to an idle client. It is disconnected if it does not reply within 20 s, or within
    /// another interval if that is shorter.
    pub keep_alive: Duration,
    /// Concurrent streams of one connection.
    pub max_streams: u32,
    /// Bytes of a put, delete or transaction request.
    pub max_request_bytes: usize,
    /// Bytes of keys and values that a range returns. Larger ones fail with RESOURCE_EXHAUSTED, as in etcd beyond
    /// 2 GiB. The store's `txn_read_bytes` bounds those of a transaction.
    pub max_response_bytes: usize,
    /// Operations in a transaction.
    pub max_txn_ops: usize,
    /// Watches on one stream.
    pub max_watches: usize,
    /// Interval of progress notifications to an idle watch with `progress_notify`. etcd's is 10 minutes; kube-apiserver's
    /// watch cache wants 5 s.
    pub progress_interval: Duration,
    /// Interval of periodic compaction. `None` leaves compaction to clients, as kube-apiserver does it.
    pub compact_interval: Option<Duration>,
    /// Newest revisions that periodic compaction retains.
    pub compact_min_retain: Revision,
    /// Quota that the store was opened with, for Status responses. 0 for none.
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
            max_response_bytes: 512 << 20,
            max_txn_ops: 128,
            max_watches: 16_384,
            progress_interval: Duration::from_secs(5),
            compact_interval: None,
            compact_min_retain: 1000,
            quota_bytes: 0,
        }
    }
}

/// The store, and the state of the endpoint.
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

    /// Returns a header with a revision.
    pub(crate) fn header(&self, revision: Revision) -> Option<ResponseHeader> {
        self.identity.header(revision)
    }

    /// Returns a header with the newest revision.
    pub(crate) async fn header_now(&self) -> Result<Option<ResponseHeader>, tonic::Status> {
        Ok(self.header(self.store.revision().await.map_err(crate::errors::status)?))
    }

    /// Ends every open stream.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Resolves on shutdown.
    pub(crate) async fn stopped(self: Arc<Self>) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}
