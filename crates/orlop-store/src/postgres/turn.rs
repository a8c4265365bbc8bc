//! Whose turn it is to write.
//!
//! Whoever writes holds a lock while it does, one for each schema. To take a turn is to hold it alone and to step the
//! turn's number up; from then on, until somebody else does so, nobody else has written. So for as long as a turn lasts
//! its owner knows what there is, and writes without looking, holding the lock together with others: with anybody who
//! takes their turn for granted too, of whom all but the owner will see that they are wrong.
//!
//! The number is a sequence's, since what is read of a sequence is what it is now. What is read of a table is what it
//! was when the statement began, and that may have been before the lock was got.
//!
//! A turn belongs to one session. What a session that was lost has still on its way to the server comes to nothing once
//! another turn has been taken.

use super::schema::lock_number;

const WRITE_LOCK: i32 = i32::from_be_bytes(*b"orlw");

/// The number of a turn.
pub(super) type Turn = i64;

/// The turn that lasts, null before the first. The lock must be held. (`select last_value from turn` takes longer.)
pub(super) const LASTING: &str = "pg_sequence_last_value('turn')";

/// Begins a transaction whose statements look anew each, whatever the server's default.
pub(super) const BEGIN: &str = "begin isolation level read committed";

/// The lock of one schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteLock {
    schema: i32,
}

impl WriteLock {
    pub(super) fn of(schema: &str) -> Self {
        Self { schema: lock_number(schema) }
    }

    /// Waits until this transaction alone holds the lock. Statements that follow see everything that was written before,
    /// since each of them looks anew.
    pub(super) fn take(self) -> String {
        let Self { schema } = self;
        format!("select pg_advisory_xact_lock({WRITE_LOCK}, {schema})")
    }

    /// Begins a transaction, and the same.
    pub(super) fn begin(self) -> String {
        format!("{BEGIN}; {}", self.take())
    }

    /// A condition that waits for the lock and is true if it is the turn of the parameter that follows.
    pub(super) fn if_turn_is(self) -> String {
        let Self { schema } = self;
        // `case` is evaluated in this order, whatever the planner thinks.
        format!(
            "case when pg_advisory_xact_lock_shared({WRITE_LOCK}, {schema}) is not null then {LASTING} = "
        )
    }

    /// Ends whatever turn lasts, so that its owner has to look anew.
    pub(super) fn interrupt(self) -> String {
        format!("{}; {END}; commit", self.begin())
    }
}

/// Ends the turn that lasts. The lock must be held alone.
pub(super) const END: &str = "select setval('turn', last_value + 1) from turn";
