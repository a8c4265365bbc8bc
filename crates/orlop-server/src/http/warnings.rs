//! Warnings for the client, sent as `Warning` headers.

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderValue, Response, header};

/// Bytes of all warnings of a response beyond which each is truncated, as in Kubernetes.
const TOTAL_CHARS_MAX: usize = 4096;
const TRUNCATED_CHARS: usize = 256;

/// Collects the warnings of one request.
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

    /// Moves the warnings into the headers of a response.
    pub(crate) fn write_to<B>(&self, response: &mut Response<B>) {
        let warnings = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let total: usize = warnings.iter().map(|warning| warning.chars().count()).sum();
        for warning in warnings {
            let text: String = match total > TOTAL_CHARS_MAX {
                true => warning.chars().take(TRUNCATED_CHARS).collect(),
                false => warning,
            };
            let quoted: String = text
                .chars()
                .filter(|c| !c.is_control())
                .flat_map(|c| match c {
                    '"' | '\\' => vec!['\\', c],
                    _ => vec![c],
                })
                .collect();
            if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
    }
}
