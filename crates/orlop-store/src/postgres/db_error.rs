//! Classification of PostgreSQL's errors by how to proceed.

use std::error::Error as _;

use tokio_postgres::error::{DbError as ServerError, SqlState};

use crate::error::Error;

/// Failure of a call to the database.
#[derive(Debug)]
pub(super) enum DbError {
    /// The connection is lost or unusable. The statement under way may or may not have been executed.
    ConnectionLost(String),
    /// The server rolled back; a retry may succeed.
    Transient(String),
    /// An inserted row exists already.
    UniqueViolation(String),
    /// A retry would fail the same way.
    Permanent(Error),
    /// The request is invalid or its data is damaged. The session is intact.
    Rejected(Error),
}

impl DbError {
    /// Returns the error for a caller when nothing was written and nothing is retried.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::ConnectionLost(reason) | Self::Transient(reason) | Self::UniqueViolation(reason) => {
                Error::Unavailable(reason)
            }
            Self::Permanent(error) | Self::Rejected(error) => error,
        }
    }

    /// Returns whether a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::ConnectionLost(_) | Self::Transient(_))
    }
}

impl From<tokio_postgres::Error> for DbError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(error) => from_server(error),
            None => Self::ConnectionLost(describe(&error)),
        }
    }
}

/// Classifies a failure to connect. An untrusted certificate, a server without TLS or a missing password are permanent;
/// network errors are not.
pub(super) fn connect_error(error: tokio_postgres::Error) -> DbError {
    let mut cause = error.source();
    let (mut network, mut untrusted) = (cause.is_none(), false);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            network = true;
            let tls = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            untrusted |= matches!(tls, Some(rustls::Error::InvalidCertificate(_)));
        }
        cause = inner.source();
    }
    if error.as_db_error().is_none() && (untrusted || !network) {
        return DbError::Permanent(Error::Unavailable(describe(&error)));
    }
    error.into()
}

/// Classifies an error of the server. Its details are dropped: they quote rows.
fn from_server(error: &ServerError) -> DbError {
    let code = error.code();
    let text = format!("PostgreSQL: {} ({})", error.message(), code.code());
    let fatal = matches!(error.severity(), "FATAL" | "PANIC");
    match code.code() {
        "23505" => DbError::UniqueViolation(text),
        "53100" => DbError::Permanent(Error::Full(text)),
        // Authentication failed, or the database does not exist.
        class if class.starts_with("28") || class.starts_with("3D") => {
            DbError::Permanent(Error::Unavailable(text))
        }
        "57P04" => DbError::Permanent(Error::Unavailable(text)),
        class if class.starts_with("08") || class.starts_with("57P") => DbError::ConnectionLost(text),
        // A standby, or a transaction that the server aborted: another connection may succeed.
        "25006" | "25P03" | "25P02" | "0A000" => DbError::ConnectionLost(text),
        class if class.starts_with("40") || class.starts_with("53") || class.starts_with("58") => {
            if fatal {
                DbError::ConnectionLost(text)
            } else {
                DbError::Transient(text)
            }
        }
        _ if *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::QUERY_CANCELED => {
            DbError::Transient(text)
        }
        _ if fatal => DbError::ConnectionLost(text),
        _ => DbError::Permanent(Error::Unavailable(text)),
    }
}

/// Formats a client-side error with its causes.
fn describe(error: &tokio_postgres::Error) -> String {
    let mut text = format!("PostgreSQL: {error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}
