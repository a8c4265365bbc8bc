//! Warnings for the client, sent as `Warning` headers.

use http::{HeaderValue, Response, header};
pub use orlop_api::warnings::Warnings;

/// Bytes of all warnings of a response beyond which each is truncated, as in Kubernetes.
const TOTAL_CHARS_MAX: usize = 4096;
const TRUNCATED_CHARS: usize = 256;

/// Moves warnings into the headers of a response.
pub(crate) fn write_to<B>(warnings: &Warnings, response: &mut Response<B>) {
    let warnings = warnings.take();
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
