//! Speculative writes: a batch in one round trip.
//!
//! A batch is usually two round trips: one takes the write lock and reads, one writes and commits. The writer that
//! owns the current *epoch* knows the end of the log and caches the rows it has read and written, so it evaluates a
//! batch from its [`RowCache`], and sends one statement that verifies the assumptions and writes only if they hold. If
//! they do not, nothing was written, and the batch runs again under the exclusive lock.
//!
//! # Correctness
//!
//! Every write holds the advisory write lock of its schema until its transaction ends: exclusively
//! ([`WriteLock::begin_exclusive`]) or shared ([`WriteLock::shared_epoch_check`]).
//!
//! 1. *An epoch has one owner.* An epoch begins when a session that holds the lock exclusively increments the sequence
//!    `turn` and commits. Only that session writes under this epoch.
//! 2. *Stale writers are fenced.* A speculative statement takes the lock shared and then compares the sequence with its
//!    epoch, in this order (`case`). Shared and exclusive holders exclude each other, so if the comparison succeeds, no
//!    other epoch began since, and none can begin before the statement commits. A sequence is read, not a table,
//!    because it is not subject to the statement's snapshot, which may be older than the lock. A statement of a lost
//!    session that arrives late fails the comparison once another epoch has begun.
//! 3. *The owner knows the log.* From 1 and 2: while its epoch lasts, nobody else has written. So revisions and version
//!    ids continue without gaps where the owner's last batch ended.
//! 4. *Cached rows are current or verified.* A row that was read or written in this epoch is current by 3. A row from
//!    an earlier epoch is an assumption: the same statement verifies its version and terms under the lock.
//! 5. *A key assumed absent verifies itself.* Inserting it fails with a unique violation if it exists, which rolls the
//!    statement back. If the batch does not insert it, its absence is verified like 4.
//! 6. *All or nothing.* Every part of the statement depends on the part `sure`, which returns no row if an assumption is
//!    wrong. The statement is its own transaction.
//! 7. *Ambiguous commits are resolved.* If the connection is lost during a commit, the writer takes the lock exclusively
//!    on a new session, which waits until the old transaction has ended, and ends its epoch, which fences what may
//!    still arrive (2). How far the epoch got is then final, and says whether the batch was committed: the beginning
//!    of each epoch records the end of the one before in `writer`.
//! 8. *Listeners are not missed.* A notification is omitted only if this process found no other listener in this epoch
//!    while it held the lock exclusively. A session that starts to listen begins a new epoch before its first read of
//!    the log ([`Listeners::register`]), so the owner has to look again.
//!
//! Damaged rows are not hidden: values are never taken from the cache, only version numbers and terms.
//!
//! # Scope
//!
//! `Config::speculative_writes` turns it off; then every batch runs under the exclusive lock, and the rest of the engine
//! is the same. After a wrong assumption twice as many batches as before (up to 64) skip speculation, so that
//! processes that write alternately do not waste round trips.

mod batch;
mod epoch;
mod listeners;
mod row_cache;
mod statement;

pub(super) use batch::{LogEnd, Speculation};
pub(super) use epoch::{CURRENT_EPOCH, Epoch, START_EPOCH, WriteLock};
pub(super) use listeners::Listeners;
pub(super) use statement::{Assumptions, LockedWrite, Precondition, insert_log, write_batch};

#[cfg(doc)]
use row_cache::RowCache;
