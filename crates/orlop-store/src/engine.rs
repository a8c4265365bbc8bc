//! The interface between the store and a database. It says nothing of SQL.
//!
//! [`Engine`] is what any ordered, transactional key-value database can do: commit a batch, read a snapshot,
//! read the tail of the log, signal other processes' writes, delete compacted history, and elect a leader. Group
//! commit, evaluation of transactions, watches, leases and the schedule of compaction are written once, above it.
//!
//! Features of some databases only are capabilities: [`FileSnapshot`], [`Shrink`], [`Purge`].

use std::{path::Path, sync::Arc};

use bytes::Bytes;

use crate::{
    EncodedPage, Lease, LeaseId, Read, ReadResult, Revision, RowEncoder, Terms, Txn, TxnResult,
    error::Result,
    event::{Commit, VersionId},
};

/// One entry of a batch. Each is atomic; a batch becomes durable as a whole.
#[derive(Debug)]
pub(crate) enum Command {
    Txn(Txn),
    /// Grants a lease with a chosen or generated id.
    Grant {
        id: Option<LeaseId>,
        ttl_seconds: i64,
    },
    /// Restarts a lease's time to live.
    Renew(LeaseId),
    /// Deletes a lease and the keys attached to it.
    Revoke(LeaseId),
    /// Revokes a lease if it is overdue by the database's clock.
    Expire(LeaseId),
    /// Replaces the index terms of live versions without a new revision. Keys that have changed since are skipped.
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

/// Position of a commit in the order of commits, for engines that sync after committing.
pub(crate) type CommitSequence = u64;

/// A committed batch: one outcome a command, and the commits to publish once it is durable.
#[derive(Debug)]
pub(crate) struct CommittedBatch {
    pub(crate) outcomes: Vec<Result<Outcome>>,
    pub(crate) commits: Vec<Arc<Commit>>,
    pub(crate) sequence: CommitSequence,
}

/// The newest and the oldest readable revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) current: Revision,
    pub(crate) compacted: Revision,
}

/// Approximate size of a piece of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailLimit {
    pub(crate) events: usize,
    /// Bytes of values.
    pub(crate) bytes: usize,
}

/// Size of the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes the database occupies.
    pub total: u64,
    /// Bytes that hold data.
    pub used: u64,
}

/// A database under the store.
#[async_trait::async_trait]
pub(crate) trait Engine: Send + Sync + std::fmt::Debug {
    /// Evaluates the commands in order, each seeing those before it, and commits them as one transaction.
    /// An error means that nothing was written. Called by one task at a time.
    async fn commit(&self, batch: &[Command]) -> Result<CommittedBatch>;

    /// Returns whether `commit` completes on its first poll, blocking the thread instead of waiting.
    fn commits_inline(&self) -> bool {
        false
    }

    /// Blocks the thread until a commit is durable. Until then it must not be acknowledged or published. The next
    /// batch may be committed meanwhile. An error means that a crash may still undo the commit.
    fn wait_durable(&self, _sequence: CommitSequence) -> Result<()> {
        Ok(())
    }

    /// Returns whether commits need [`Self::wait_durable`].
    fn defers_durability(&self) -> bool {
        false
    }

    /// Returns the maximum number of keys of one page of a long read. Larger pages read no faster from a file, and
    /// what is allocated on the threads that read stays with them.
    fn max_page_keys(&self) -> usize {
        512
    }

    /// Reads one page of one snapshot. It ends at `read.limit`, which is never 0 here, or with the value that makes
    /// it `bytes` long.
    async fn read(&self, read: &Read, bytes: usize) -> Result<ReadResult>;

    /// Reads one page and encodes its rows.
    async fn read_encoded(
        &self,
        read: &Read,
        bytes: usize,
        encoder: &Arc<dyn RowEncoder>,
    ) -> Result<EncodedPage> {
        Ok(EncodedPage::encode(self.read(read, bytes).await?, &**encoder))
    }

    /// Returns whole commits after `after`, oldest first: at least one if there is one, up to about `limit`.
    /// Expired if `after` is further back than one before the compacted revision.
    async fn tail(&self, after: Revision, limit: TailLimit) -> Result<Vec<Arc<Commit>>>;

    /// Returns the values of versions, `None` where compaction has deleted one.
    async fn values(&self, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>>;

    /// Decodes a value that [`Self::values`] returned.
    async fn decode(&self, _key: &Bytes, value: Bytes) -> Result<Bytes> {
        Ok(value)
    }

    /// Returns the newest and the oldest readable revision.
    async fn bounds(&self) -> Result<Bounds>;

    /// Raises the compacted revision, before anything is deleted. A lower revision than the current is ignored.
    async fn set_compacted(&self, revision: Revision) -> Result<()>;

    /// Deletes up to about `limit` versions below the compacted revision, fewer where writers would have to
    /// wait. Returns whether more are left.
    async fn compact_step(&self, limit: usize) -> Result<bool>;

    /// Returns when another process may have written, or after the poll interval.
    async fn wait_for_changes(&self);

    /// Returns whether this process is the one, of those sharing the database, that compacts and expires leases.
    async fn is_leader(&self) -> bool;

    /// Returns a lease, if it is granted.
    async fn lease(&self, id: LeaseId) -> Result<Option<Lease>>;

    /// Returns the keys attached to a lease, sorted.
    async fn lease_keys(&self, id: LeaseId) -> Result<Vec<Bytes>>;

    /// Returns leases sorted by remaining time, the most overdue first.
    async fn leases(&self, limit: usize) -> Result<Vec<Lease>>;

    /// Returns a named entry kept beside the data, such as which fields of a range are indexed.
    async fn metadata(&self, name: &str) -> Result<Option<String>>;

    /// Writes a named entry beside the data.
    async fn set_metadata(&self, name: &str, text: &str) -> Result<()>;

    /// Returns the size of the database.
    async fn size(&self) -> Result<Size>;

    /// Fails with the reason why the engine cannot accept writes now. Does not wait.
    fn health(&self) -> Result<()> {
        Ok(())
    }

    /// Refuses further writes and completes what a clean stop should leave. Reads keep working.
    async fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the capability to copy the database to a file.
    fn file_snapshot(&self) -> Option<&dyn FileSnapshot> {
        None
    }

    /// Returns the capability to give free space back to the file system.
    fn shrink(&self) -> Option<&dyn Shrink> {
        None
    }

    /// Returns the capability to overwrite what deleted rows leave behind.
    fn purge(&self) -> Option<&dyn Purge> {
        None
    }
}

/// Copies a database to a file while it is in use.
#[async_trait::async_trait]
pub(crate) trait FileSnapshot: Send + Sync {
    /// Writes a consistent copy of everything to a new file.
    async fn snapshot(&self, path: &Path) -> Result<()>;
}

/// Gives free space back to the file system.
#[async_trait::async_trait]
pub(crate) trait Shrink: Send + Sync {
    /// Gives back up to about `pages` pages. Returns whether more are left.
    async fn shrink_step(&self, pages: usize) -> Result<bool>;
}

/// Overwrites what deleted rows leave behind in the database's files.
#[async_trait::async_trait]
pub(crate) trait Purge: Send + Sync {
    /// Rewrites the database from its rows, and empties its write-ahead log. Returns whether the log is empty: another
    /// process may still use it.
    async fn purge(&self) -> Result<bool>;
}
