//! Conversion of SQLite's errors.

use rusqlite::ErrorCode;

use crate::error::Error;

/// Converts an error of SQLite. Damage of a single row is detected where its key is known.
pub(crate) fn sql_error(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full("the disk of the database is full".into()),
        Some(ErrorCode::ReadOnly) => {
            Error::Unavailable("the database file or its file system is read-only".into())
        }
        Some(ErrorCode::CannotOpen) => Error::Unavailable(format!("cannot open the database file: {error}")),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::Unavailable(format!("the database file is damaged: {error}"))
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::Unavailable("another process holds the database".into())
        }
        _ => Error::Unavailable(format!("SQLite: {error}")),
    }
}
