//! What PostgreSQL's errors mean for what to do next.

use std::error::Error as _;

use tokio_postgres::error::{DbError, SqlState};

use crate::error::Error;

/// Why a call to the database did not give an answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection is gone, or can no longer be used. What was under way may or may not have happened.
    Lost(String),
    /// The server undid what was under way; the same may work a moment later.
    Again(String),
    /// A row that was to be new is there already.
    Taken(String),
    /// Trying again gives the same.
    Final(Error),
    /// The database did its part; this is the answer to the caller, and the session is as good as before.
    Answer(Error),
}

impl Fault {
    /// The error for a caller once nobody tries again and nothing has happened.
    pub(super) fn given_up(self) -> Error {
        match self {
            Self::Lost(reason) | Self::Again(reason) | Self::Taken(reason) => Error::Unavailable(reason),
            Self::Final(error) | Self::Answer(error) => error,
        }
    }

    /// Whether the same call may work later.
    pub(super) fn passes(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Again(_))
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(database) => from_database(database),
            None => Self::Lost(described(&error)),
        }
    }
}

/// What a failure to connect means. A certificate that is not trusted, a server without TLS or a password that
/// nobody has given do not get better by trying again; a network does.
pub(super) fn not_connected(error: tokio_postgres::Error) -> Fault {
    let mut cause = error.source();
    let (mut network, mut distrust) = (cause.is_none(), false);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            network = true;
            let tls = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            distrust |= matches!(tls, Some(rustls::Error::InvalidCertificate(_)));
        }
        cause = inner.source();
    }
    if error.as_db_error().is_none() && (distrust || !network) {
        return Fault::Final(Error::Unavailable(described(&error)));
    }
    error.into()
}

/// Keeps a message, without the details: those quote rows.
fn from_database(error: &DbError) -> Fault {
    let code = error.code();
    let text = format!("PostgreSQL: {} ({})", error.message(), code.code());
    let fatal = matches!(error.severity(), "FATAL" | "PANIC");
    match code.code() {
        "23505" => Fault::Taken(text),
        "53100" => Fault::Final(Error::Full(text)),
        // A password or a role does not get better within one call, and a lost database does not come back.
        class if class.starts_with("28") || class.starts_with("3D") => Fault::Final(Error::Unavailable(text)),
        "57P04" => Fault::Final(Error::Unavailable(text)),
        class if class.starts_with("08") || class.starts_with("57P") => Fault::Lost(text),
        // A standby, or a transaction that the server gave up on: another connection may do better.
        "25006" | "25P03" | "25P02" | "0A000" => Fault::Lost(text),
        class if class.starts_with("40") || class.starts_with("53") || class.starts_with("58") => {
            if fatal {
                Fault::Lost(text)
            } else {
                Fault::Again(text)
            }
        }
        _ if *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::QUERY_CANCELED => Fault::Again(text),
        _ if fatal => Fault::Lost(text),
        _ => Fault::Final(Error::Unavailable(text)),
    }
}

/// An error of the client's side with its causes.
fn described(error: &tokio_postgres::Error) -> String {
    let mut text = format!("PostgreSQL: {error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}
