//! Reasons to reject a request.

/// Reason for which a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// The seats of its level, which has no queues, are occupied.
    ConcurrencyLimit,
    /// Its queue is full.
    QueueFull,
    /// It waited too long.
    TimeOut,
    /// Its client has gone.
    Cancelled,
}

impl RejectReason {
    pub(crate) const ALL: [Self; 4] =
        [Self::ConcurrencyLimit, Self::QueueFull, Self::TimeOut, Self::Cancelled];

    /// Returns the reason as metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The reason.
    pub reason: RejectReason,
    /// Seconds after which the client should try again.
    pub retry_after_seconds: u64,
}
