//! Patches other than apply: JSON patch, JSON merge patch, strategic merge patch.
//!
//! Each function takes an object and a patch and returns an object. The caller
//! validates, defaults and tracks the result.

mod json;
mod merge;
mod strategic;

pub use json::{JsonPatch, OPERATIONS_MAX};
pub use merge::merge_patch;
pub use strategic::strategic_merge_patch;

use crate::decode::DecodeError;
use crate::status::{Reason, Status};

/// Error of decoding or applying a patch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The body is not a patch: 400.
    #[error("{0}")]
    Malformed(String),
    /// More operations than allowed: 413.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {0}")]
    TooManyOperations(usize),
    /// The patch does not apply: 422, without details, as in Kubernetes.
    #[error("{0}")]
    DoesNotApply(String),
    /// The patch violates the kind's types: 500 with the plain text, as in Kubernetes.
    #[error("{0}")]
    Rejected(String),
}

impl From<DecodeError> for PatchError {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl From<PatchError> for Status {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed(message) => Self::bad_request(message),
            PatchError::TooManyOperations(_) => Self::request_entity_too_large(&error.to_string()),
            PatchError::DoesNotApply(_) => {
                let message = "the server rejected our request due to an error in our request";
                let mut status = Self::new(422, Reason::Invalid, message);
                status.details_mut();
                status
            }
            PatchError::Rejected(message) => Self::plain(message),
        }
    }
}
