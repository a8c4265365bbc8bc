//! What the store asks of a database, and nothing of SQL.
//!
//! An engine keeps the log of versions, knows each key's current version, and can do five things:
//! commit a batch, read a snapshot, read the tail of the log, tell when somebody else wrote, and forget
//! what is compacted. Group commit, evaluation of transactions, watching, leases and the choice of when to
//! compact are written once, above this line.

use std::{path::Path, sync::Arc};

use bytes::Bytes;

use crate::{
    EncodedPage, Lease, LeaseId, Read, ReadResult, Revision, RowEncoder, Terms, Txn, TxnResult,
    error::Result,
    event::{Commit, VersionId},
};

/// One entry of a batch. Each is atomic; all of a batch become durable together.
#[derive(Debug)]
pub(crate) enum Command {
    Txn(Txn),
    /// Grant a lease, with a chosen id or a generated one.
    Grant {
        id: Option<LeaseId>,
        ttl_seconds: i64,
    },
    /// Give a lease its whole time to live again.
    Renew(LeaseId),
    /// Delete a lease and the keys that hang on it.
    Revoke(LeaseId),
    /// As revoke, if the lease is overdue; the database's clock decides.
    Expire(LeaseId),
    /// Replace the terms of live versions, without a new revision. A key that has moved on is left alone.
    Reindex(Vec<(Bytes, Revision, Terms)>),
}

/// The answer to a [`Command`].
#[derive(Debug)]
pub(crate) enum Outcome {
    Txn(TxnResult),
    Lease(Lease),
    /// The revision after the command.
    Done(Revision),
}

/// A commit's place among those to be settled. See [`Engine::settle`].
pub(crate) type Ticket = u64;

/// What a batch came to: one outcome a command, and what there is to publish, in order, once it is settled.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) outcomes: Vec<Result<Outcome>>,
    pub(crate) commits: Vec<Arc<Commit>>,
    pub(crate) ticket: Ticket,
}

/// The newest and the oldest readable revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) current: Revision,
    pub(crate) compacted: Revision,
}

/// Bytes of the database, and how many of them hold data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes the database occupies.
    pub total: u64,
    /// Bytes that hold data.
    pub used: u64,
}

/// A database under the store. See the module's documentation.
#[async_trait::async_trait]
pub(crate) trait Engine: Send + Sync + std::fmt::Debug {
    /// Evaluates the commands in order, each seeing those before it, and commits them as one.
    /// An error means that nothing of the batch happened. Called by one task at a time.
    async fn commit(&self, batch: &[Command]) -> Result<Committed>;

    /// Whether `commit` does its work when first polled, blocking the thread instead of waiting.
    fn commits_at_once(&self) -> bool {
        false
    }

    /// Blocks the thread until a commit is durable; until then nobody is told of it. The next batch may be
    /// committed meanwhile. An error means that a crash may yet undo it.
    fn settle(&self, _ticket: Ticket) -> Result<()> {
        Ok(())
    }

    /// Whether `settle` has anything to do: whether commits are not durable by themselves.
    fn settles(&self) -> bool {
        false
    }

    /// Keys that one page of a long read brings at the most. Larger pages read no faster from a file, and what is
    /// allocated on the threads that read stays with them.
    fn page_keys(&self) -> usize {
        512
    }

    /// Reads one snapshot. `read.limit` is never 0 here.
    async fn read(&self, read: &Read) -> Result<ReadResult>;

    /// The same, in a form.
    async fn read_formed(&self, read: &Read, form: &Arc<dyn RowEncoder>) -> Result<EncodedPage> {
        Ok(EncodedPage::of(self.read(read).await?, &**form))
    }

    /// Whole commits after `after`, oldest first: at least one if there is one, about `limit` events.
    /// Expired if `after` is further back than one before the compacted revision.
    async fn tail(&self, after: Revision, limit: usize) -> Result<Vec<Arc<Commit>>>;

    /// The values of versions, `None` where compaction has removed one.
    async fn values(&self, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>>;

    /// The newest and the oldest readable revision.
    async fn bounds(&self) -> Result<Bounds>;

    /// Raises the compacted revision, before anything is forgotten. Lower than what is set is no change.
    async fn mark_compacted(&self, revision: Revision) -> Result<()>;

    /// Forgets up to about `limit` versions below the compacted revision, fewer where writers would have to
    /// wait for it; whether there is more to do.
    async fn compact_step(&self, limit: usize) -> Result<bool>;

    /// Gives up to about `pages` pages of free space back to the file system; whether there is more to do.
    async fn shrink_step(&self, pages: usize) -> Result<bool>;

    /// Returns when another process may have written, or after the poll interval.
    async fn changed(&self);

    /// Whether this process is the one, of those sharing the database, that compacts and expires leases.
    async fn leads(&self) -> bool;

    /// A lease, if it is granted.
    async fn lease(&self, id: LeaseId) -> Result<Option<Lease>>;

    /// The keys that hang on a lease, sorted.
    async fn lease_keys(&self, id: LeaseId) -> Result<Vec<Bytes>>;

    /// Every lease, sorted by what is left of it, the most overdue first.
    async fn leases(&self, limit: usize) -> Result<Vec<Lease>>;

    /// A small fact kept beside the data, such as which fields of a range are indexed.
    async fn metadata(&self, name: &str) -> Result<Option<String>>;

    /// Keeps a small fact.
    async fn set_metadata(&self, name: &str, text: &str) -> Result<()>;

    /// How large the database is.
    async fn size(&self) -> Result<Size>;

    /// Writes a consistent copy of everything to a new file.
    async fn snapshot(&self, path: &Path) -> Result<()>;
}
