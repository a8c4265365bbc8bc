//! Warnings of one request for its client.

use std::sync::{Arc, Mutex, PoisonError};

/// Collects the warnings of one request. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds a warning, once.
    pub fn add(&self, warning: impl Into<String>) {
        let (mut warnings, warning) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), warning.into());
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// Removes and returns the warnings, in order.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
