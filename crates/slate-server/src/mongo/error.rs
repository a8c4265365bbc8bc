//! Errors as MongoDB's clients know them.

use bson::{Document, doc};
use slate::Error;

/// A failed command.
#[derive(Debug, Clone)]
pub(super) struct CommandError {
    pub(super) code: i32,
    pub(super) name: &'static str,
    pub(super) message: String,
}

pub(super) type Result<T> = std::result::Result<T, CommandError>;

impl CommandError {
    pub(super) fn new(code: i32, name: &'static str, message: impl Into<String>) -> Self {
        Self { code, name, message: message.into() }
    }

    pub(super) fn bad_value(message: impl Into<String>) -> Self {
        Self::new(2, "BadValue", message)
    }

    pub(super) fn to_document(&self) -> Document {
        doc! { "ok": 0.0, "errmsg": &self.message, "code": self.code, "codeName": self.name }
    }

    /// Returns the entry of `writeErrors` for the statement at a position.
    pub(super) fn to_write_error(&self, position: usize) -> Document {
        doc! { "index": position as i32, "code": self.code, "errmsg": &self.message }
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let (code, name) = match &error {
            Error::Invalid(_) => (2, "BadValue"),
            Error::NoCollection(_) => (26, "NamespaceNotFound"),
            Error::CollectionExists(_) => (48, "NamespaceExists"),
            Error::NoIndex(_) => (27, "IndexNotFound"),
            Error::IndexConflict(_) => (85, "IndexOptionsConflict"),
            Error::DuplicateKey { index, key } => {
                let message = format!("E11000 duplicate key error index: {index} dup key: {key}");
                return Self::new(11000, "DuplicateKey", message);
            }
            Error::TooLarge(_) => (10334, "BSONObjectTooLarge"),
            Error::TimedOut => (50, "MaxTimeMSExpired"),
            Error::Cancelled => (11601, "Interrupted"),
            _ => (1, "InternalError"),
        };
        Self::new(code, name, error.to_string())
    }
}
