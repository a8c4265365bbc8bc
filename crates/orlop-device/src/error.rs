//! Errors of calls, and their gRPC status.
//!
//! Errors that a client can fix have their reason in the status. For those that only an operator can fix, such as a failed
//! disk, the status says "storage is unavailable" and the log has the details.

use orlop_api::field_error::{FieldError, aggregate};
use tonic::Status;

/// An error of a verb.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such object.
    #[error("{plural} {name:?} not found")]
    NotFound {
        /// The resource, e.g. `gpus.device.nvidia.com`.
        plural: String,
        /// The object's name.
        name: String,
    },
    /// An object with this name exists.
    #[error("{plural} {name:?} already exists")]
    AlreadyExists {
        /// The resource.
        plural: String,
        /// The object's name.
        name: String,
    },
    /// A concurrent write, or a failed precondition.
    #[error("operation cannot be fulfilled on {plural} {name:?}: {why}")]
    Conflict {
        /// The resource.
        plural: String,
        /// The object's name.
        name: String,
        /// The cause.
        why: String,
    },
    /// Validation failed.
    #[error("{kind} {name:?} is invalid: {}", aggregate(.errors))]
    Invalid {
        /// The kind, e.g. `GPU`.
        kind: &'static str,
        /// The object's name.
        name: String,
        /// The errors, by field.
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
    /// The response would exceed the largest message.
    #[error("{0}")]
    TooLarge(String),
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// The caller is not authenticated.
    #[error("{0}")]
    Unauthenticated(String),
    /// A stored object cannot be read.
    #[error("stored object {0:?} cannot be read")]
    Unreadable(String),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// An error of the store.
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
                tracing::error!(error = %why, "ambiguous commit");
                Status::deadline_exceeded("ambiguous commit: the write may have happened")
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
