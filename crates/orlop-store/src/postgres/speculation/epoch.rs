//! Writer epochs and the write lock. See [the module](super) for the argument.

use crate::postgres::lock_key::lock_key;

const WRITE_LOCK: i32 = i32::from_be_bytes(*b"orlw");

/// Number of a writer epoch. The sequence and the columns are named `turn` in the database.
pub(in crate::postgres) type Epoch = i64;

/// Expression for the current epoch, null before the first. The lock must be held. (`select last_value from turn`
/// is slower.)
const CURRENT: &str = "pg_sequence_last_value('turn')";

/// Expression for the current epoch under the exclusive lock, 1 before the first.
pub(in crate::postgres) const CURRENT_EPOCH: &str = "(select last_value from turn)";

/// Begins an epoch without an owner: fences the current one. The lock must be held exclusively.
pub(in crate::postgres) const START_EPOCH: &str = "select setval('turn', last_value + 1) from turn";

/// The write lock of one schema.
#[derive(Clone, Copy, Debug)]
pub(in crate::postgres) struct WriteLock {
    schema: i32,
}

impl WriteLock {
    /// Begins a transaction whose statements each take a new snapshot, whatever the server's default.
    pub(in crate::postgres) const BEGIN: &str = "begin isolation level read committed";

    pub(in crate::postgres) fn new(schema: &str) -> Self {
        Self { schema: lock_key(schema) }
    }

    /// Returns a statement that takes the lock exclusively for the transaction. Statements after it see every write
    /// before it, since each takes a new snapshot.
    pub(in crate::postgres) fn lock_exclusive(self) -> String {
        let Self { schema } = self;
        format!("select pg_advisory_xact_lock({WRITE_LOCK}, {schema})")
    }

    /// Returns statements that begin a transaction and take the lock exclusively.
    pub(in crate::postgres) fn begin_exclusive(self) -> String {
        format!("{}; {}", Self::BEGIN, self.lock_exclusive())
    }

    /// Returns the beginning of a condition that takes the lock shared and compares the current epoch with the
    /// parameter that follows. `case` guarantees the order, whatever the planner prefers. The caller adds `end`.
    pub(in crate::postgres) fn shared_epoch_check(self) -> String {
        let Self { schema } = self;
        format!(
            "case when pg_advisory_xact_lock_shared({WRITE_LOCK}, {schema}) is not null then {CURRENT} = "
        )
    }

    /// Returns statements that fence the current epoch.
    pub(in crate::postgres) fn fence(self) -> String {
        format!("{}; {START_EPOCH}; commit", self.begin_exclusive())
    }
}
