//! Failures of calls and their classes.

use std::time::Duration;

/// An error that AWS answered with.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    /// Service as the SDK writes it.
    pub(crate) service: &'static str,
    pub(crate) operation: &'static str,
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
    /// Goes to the log only: in a status it would change with every try.
    pub(crate) request_id: String,
    pub(crate) retry_after: Option<Duration>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// A failure of a pass.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// AWS refused.
    #[error("{0}")]
    Api(Box<ApiError>),
    /// AWS did not answer. A write may have happened or not.
    #[error("{service} {operation}: {cause}")]
    Transport { service: &'static str, operation: &'static str, cause: String },
    /// No credentials were found, or they could not be had.
    #[error("credentials: {0}")]
    Credentials(String),
    /// Only a change of the object can help.
    #[error("{0}")]
    Terminal(String),
    /// A precondition is not met yet; requeue after a time.
    #[error("{message}")]
    Wait { after: Duration, message: String },
    /// The role of an object is not known yet.
    #[error("{0}")]
    Role(String),
    /// It may help to try again, or to change something else.
    #[error("{0}")]
    Recoverable(String),
    /// Kubernetes refused or did not answer.
    #[error("{0}")]
    Kubernetes(String),
}

/// The class of a failure, which decides the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Transient,
    Recoverable,
    Terminal,
    Wait(Duration),
}

/// Wait for a role that is not known yet.
const ROLE_RETRY: Duration = Duration::from_secs(15);

/// Result of calls.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<orlop_client::Error> for Failure {
    fn from(error: orlop_client::Error) -> Self {
        Self::Kubernetes(match error {
            orlop_client::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        })
    }
}

impl Failure {
    pub(crate) fn wait(seconds: u64, message: impl Into<String>) -> Self {
        Self::Wait { after: Duration::from_secs(seconds), message: message.into() }
    }

    /// Returns the code of an error that AWS answered with.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Api(error) => Some(&error.code),
            _ => None,
        }
    }

    pub(crate) fn is(&self, codes: &[&str]) -> bool {
        self.code().is_some_and(|code| codes.contains(&code))
    }

    /// True if what a call names does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.is(&[
            "ResourceNotFoundException",
            "NotFoundException",
            "NoSuchEntity",
            "NoSuchBucket",
            "NoSuchHostedZone",
            "NotFound",
        ])
    }

    /// True if the call was refused because there are too many.
    pub(crate) fn is_throttled(&self) -> bool {
        let by_status = matches!(self, Self::Api(error) if error.status == 429);
        by_status
            || self.is(&[
                "Throttling",
                "ThrottlingException",
                "ThrottledException",
                "TooManyRequestsException",
                "RequestLimitExceeded",
                "SlowDown",
                "PriorRequestNotComplete",
                "RequestThrottled",
                "ProvisionedThroughputExceededException",
            ])
    }

    /// True if the caller lacks a permission.
    pub(crate) fn is_denied(&self) -> bool {
        self.is(&["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"])
    }

    /// True if AWS could not be reached, or had no answer of its own.
    pub(crate) fn is_unreachable(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Credentials(_) => true,
            Self::Api(error) => error.status >= 500,
            _ => false,
        }
    }

    /// Returns the class, given the codes that are terminal for a kind.
    pub(crate) fn class(&self, terminal: &[&str]) -> Class {
        match self {
            Self::Terminal(_) => Class::Terminal,
            Self::Wait { after, .. } => Class::Wait(*after),
            Self::Role(_) => Class::Wait(ROLE_RETRY),
            Self::Recoverable(_) => Class::Recoverable,
            Self::Transport { .. } | Self::Credentials(_) | Self::Kubernetes(_) => Class::Transient,
            Self::Api(error) => {
                let expired = ["ExpiredToken", "ExpiredTokenException", "RequestExpired"];
                if self.is_throttled() || error.status >= 500 || expired.contains(&error.code.as_str()) {
                    Class::Transient
                } else if terminal.contains(&error.code.as_str()) {
                    Class::Terminal
                } else {
                    Class::Recoverable
                }
            }
        }
    }

    /// Returns the time that AWS asked to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api(error) => error.retry_after,
            _ => None,
        }
    }

    /// Returns the long form, as the SDK writes it, without the request id.
    pub(crate) fn long(&self) -> String {
        match self {
            Self::Api(error) => format!(
                "operation error {}: {}, https response error StatusCode: {}, {}: {}",
                error.service, error.operation, error.status, error.code, error.message
            ),
            other => other.to_string(),
        }
    }
}

/// Maps not-found errors to `None`.
pub(crate) fn optional<T>(result: Result<T>, absent: &[&str]) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(failure) if failure.is_not_found() || failure.is(absent) => Ok(None),
        Err(failure) => Err(failure),
    }
}
