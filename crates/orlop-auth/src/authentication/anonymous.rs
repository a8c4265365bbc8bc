//! Requests without a credential.

use std::collections::BTreeSet;

/// Requests that are served without a credential. Authorization still decides about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// None: a credential is required.
    Disabled,
    /// Any.
    Enabled,
    /// Those of listed paths.
    Paths(BTreeSet<String>),
}

impl Anonymous {
    /// Returns true if a request of a path needs no credential.
    pub fn allows(&self, path: &str) -> bool {
        match self {
            Self::Disabled => false,
            Self::Enabled => true,
            Self::Paths(paths) => paths.contains(path),
        }
    }
}
