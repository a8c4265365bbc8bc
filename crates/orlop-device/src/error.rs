//! What can go wrong with a call, and the gRPC code it is told with.
//!
//! What a caller can do something about says what; what only the operator can, such as a broken disk, says
//! that storage is unavailable and leaves the details to the log.

use orlop_api::field_error::{FieldError, aggregate};
use tonic::Status;

/// Everything a verb can answer instead of a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such object.
    #[error("{plural} {name:?} not found")]
    NotFound {
        /// The resource, e.g. `gpus.device.nvidia.com`.
        plural: String,
        /// Which object.
        name: String,
    },
    /// An object with this name is there already.
    #[error("{plural} {name:?} already exists")]
    AlreadyExists {
        /// The resource.
        plural: String,
        /// Which object.
        name: String,
    },
    /// Somebody else wrote in between, or a precondition does not hold.
    #[error("operation cannot be fulfilled on {plural} {name:?}: {why}")]
    Conflict {
        /// The resource.
        plural: String,
        /// Which object.
        name: String,
        /// What did not hold.
        why: String,
    },
    /// The object is not acceptable, field by field.
    #[error("{kind} {name:?} is invalid: {}", aggregate(.errors))]
    Invalid {
        /// The kind, e.g. `GPU`.
        kind: &'static str,
        /// Which object.
        name: String,
        /// What is wrong with it.
        errors: Vec<FieldError>,
    },
    /// The request contradicts itself.
    #[error("{0}")]
    BadRequest(String),
    /// A patch of an unknown type.
    #[error(
        "unsupported media type: {0:?} is none of \"application/json-patch+json\", \"application/merge-patch+json\""
    )]
    UnsupportedPatch(String),
    /// A patch that does not apply.
    #[error("unprocessable content: {0}")]
    Unprocessable(String),
    /// The resource version is too old, or not one of this server's.
    #[error("{0}")]
    Expired(String),
    /// The answer would be larger than a message may be.
    #[error("{0}")]
    TooLarge(String),
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// The caller has not said who it is.
    #[error("{0}")]
    Unauthenticated(String),
    /// A stored object cannot be read.
    #[error("stored object {0:?} cannot be read")]
    Unreadable(String),
    /// The server is going away.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The store's own answer.
    #[error(transparent)]
    Store(#[from] orlop_store::Error),
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        use orlop_store::Error as Store;
        let message = error.to_string();
        match &error {
            Error::NotFound { .. } => Status::not_found(message),
            Error::AlreadyExists { .. } => Status::already_exists(message),
            Error::Conflict { .. } => Status::aborted(message),
            Error::Invalid { .. }
            | Error::BadRequest(_)
            | Error::UnsupportedPatch(_)
            | Error::Unprocessable(_) => Status::invalid_argument(message),
            Error::Expired(_) => Status::out_of_range(message),
            Error::TooLarge(_) => Status::resource_exhausted(message),
            Error::Forbidden(_) => Status::permission_denied(message),
            Error::Unauthenticated(_) => Status::unauthenticated(message),
            Error::ShuttingDown => Status::unavailable(message),
            Error::Store(Store::Expired { .. } | Store::FutureRevision { .. }) => {
                Status::out_of_range(message)
            }
            Error::Store(Store::TooLarge { .. }) => Status::invalid_argument(message),
            Error::Store(Store::Full(_)) => Status::resource_exhausted(message),
            Error::Store(Store::AmbiguousCommit(why)) => {
                tracing::error!(error = %why, "the outcome of a write is not known");
                Status::deadline_exceeded("the outcome of the write is not known")
            }
            Error::Store(Store::Unavailable(why)) => {
                tracing::error!(error = %why, "storage is unavailable");
                Status::unavailable("storage is unavailable")
            }
            Error::Unreadable(_) | Error::Store(_) => {
                tracing::error!(%error, "call failed");
                Status::internal(message)
            }
        }
    }
}
