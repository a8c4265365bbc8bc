//! Outcomes of a phase and of its clean-up.

use std::time::Duration;

/// Outcome of a phase.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// It holds; the next phase runs.
    Done { reason: &'static str, message: String },
    /// AWS or a child is in progress. `pending`: an external event is awaited.
    Wait { after: Duration, reason: &'static str, message: String, pending: bool },
    /// A referenced object does not exist. Degraded after three passes.
    Missing { reason: &'static str, message: String },
    /// A user must act first. Degraded at once.
    Refused { reason: &'static str, message: String },
}

impl Step {
    pub(crate) fn done(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Done { reason, message: message.into() }
    }

    /// Waits for a child or for AWS. The message includes the requeue delay.
    pub(crate) fn wait(seconds: u64, reason: &'static str, message: impl Into<String>) -> Self {
        let message = format!("{}; next check in {seconds} s", message.into());
        Self::Wait { after: Duration::from_secs(seconds), reason, message, pending: false }
    }

    /// Ends the pass so that status is written before the next one acts on it.
    pub(crate) fn again(message: impl Into<String>) -> Self {
        Self::Wait { after: Duration::ZERO, reason: "InProgress", message: message.into(), pending: false }
    }

    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::Missing { reason: "ReferenceNotFound", message: message.into() }
    }

    pub(crate) fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Refused { reason, message: message.into() }
    }
}

/// Outcome of a phase's clean-up.
#[derive(Clone, Debug)]
pub(crate) enum Cleaned {
    Gone,
    /// Something is still going.
    Wait {
        after: Duration,
        message: String,
    },
    /// Something is retained on purpose; an event reports it.
    Left(String),
}

impl Cleaned {
    pub(crate) fn wait(seconds: u64, message: impl Into<String>) -> Self {
        Self::Wait { after: Duration::from_secs(seconds), message: message.into() }
    }
}
