//! Response headers: cluster id, member id, revision, term.
//!
//! Clients take another cluster id for another database, so it is generated once and stored with the data. Every process
//! on the same data has the same member id: there is one history, and no reason for a client to tell them apart.

use orlop_store::{Revision, Store};

use crate::pb::etcdserverpb::ResponseHeader;

/// The note that keeps the cluster id.
const NOTE: &str = "etcd/cluster-id";
/// Raft term. There are no elections, so it never changes.
pub(crate) const TERM: u64 = 1;

/// Ids of the served data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) cluster_id: u64,
    pub(crate) member_id: u64,
}

impl Identity {
    /// Loads the ids, or generates and stores them.
    pub(crate) async fn load(store: &Store) -> orlop_store::Result<Self> {
        let kept = match store.metadata(NOTE).await? {
            Some(kept) => kept,
            None => {
                let made = format!("{:016x}", rand::random::<u64>().max(1));
                store.set_metadata(NOTE, &made).await?;
                // Another process may have been first.
                store.metadata(NOTE).await?.unwrap_or(made)
            }
        };
        let cluster_id = u64::from_str_radix(&kept, 16).map_err(|_| {
            orlop_store::Error::Unavailable(format!("the note {NOTE} holds {kept:?}, which is no id"))
        })?;
        Ok(Self { cluster_id, member_id: splitmix64(cluster_id) })
    }

    /// Returns a header for a revision.
    pub(crate) fn header(&self, revision: Revision) -> Option<ResponseHeader> {
        let Self { cluster_id, member_id } = *self;
        Some(ResponseHeader { cluster_id, member_id, revision, raft_term: TERM })
    }
}

/// Derives the member id from the cluster id (the finalizer of splitmix64).
fn splitmix64(id: u64) -> u64 {
    let id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (id ^ (id >> 31)).max(1)
}
