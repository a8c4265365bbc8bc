//! Rotation of a key in three steps. All servers take part in each before the next is taken, so that none meets a
//! credential of a key that it does not know.

use serde::{Deserialize, Serialize};

use super::Error;

/// A rotation under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rotation<K> {
    /// None.
    #[default]
    Idle,
    /// The next key is accepted, and not used yet.
    Prepared {
        /// The next key.
        next: K,
    },
    /// The next key is used, and the previous one still accepted.
    Activated {
        /// The previous key.
        previous: K,
    },
}

/// A step of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next key is accepted.
    Prepared,
    /// The next key is used.
    Activated,
    /// The previous key is not accepted any more.
    Finished,
}

impl<K> Rotation<K> {
    /// Takes the next step. Returns it, and the key that is retired by it.
    pub(super) fn advance(
        &mut self,
        current: &mut K,
        generate: impl FnOnce() -> Result<K, Error>,
    ) -> Result<(Step, Option<K>), Error> {
        match std::mem::take(self) {
            Self::Idle => {
                *self = Self::Prepared { next: generate()? };
                Ok((Step::Prepared, None))
            }
            Self::Prepared { next } => {
                let previous = std::mem::replace(current, next);
                *self = Self::Activated { previous };
                Ok((Step::Activated, None))
            }
            Self::Activated { previous } => Ok((Step::Finished, Some(previous))),
        }
    }

    /// Returns the key that is accepted besides the current one.
    pub(super) fn other(&self) -> Option<&K> {
        match self {
            Self::Idle => None,
            Self::Prepared { next: other } | Self::Activated { previous: other } => Some(other),
        }
    }
}
