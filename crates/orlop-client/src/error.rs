//! Errors of requests.

use std::{error::Error as StdError, path::PathBuf};

use kube_core::Status;

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Result of a request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with an error.
    #[error("ApiError: {0} ({0:?})")]
    Api(#[source] Box<Status>),
    /// The server did not answer.
    #[error("ServiceError: {0}")]
    Service(#[source] BoxError),
    /// The answer broke off.
    #[error("Error reading response: {0}")]
    ReadBody(#[source] BoxError),
    /// A line of a watch is too long.
    #[error("an event of a watch is larger than {0} bytes")]
    EventTooLarge(usize),
    /// The request is not valid HTTP.
    #[error("HttpError: {0}")]
    HttpError(#[source] http::Error),
    /// An object is not what its kind says.
    #[error("Error deserializing response: {0}")]
    SerdeError(#[source] serde_json::Error),
    /// The request could not be built.
    #[error("Failed to build request: {0}")]
    BuildRequest(#[source] kube_core::request::Error),
    /// Credentials could not be obtained.
    #[error("auth error: {0}")]
    Auth(#[source] ConfigError),
}

/// A kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file is not a kubeconfig.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// There is neither a kubeconfig nor the service account of a pod.
    #[error("no kubeconfig ({kubeconfig}), and not in a cluster ({in_cluster})")]
    NotFound {
        /// Why no kubeconfig can be used.
        kubeconfig: String,
        /// Why there is no service account.
        in_cluster: String,
    },
    /// A credential plugin failed.
    #[error("credential plugin {command}: {reason}")]
    Plugin {
        /// The program.
        command: String,
        /// The cause.
        reason: String,
    },
    /// The server's address, a certificate or a key cannot be used.
    #[error("{0}")]
    Unusable(String),
}
