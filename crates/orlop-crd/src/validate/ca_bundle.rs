//! Validation of certificate bundles.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orlop_api::field_error::{FieldError, FieldPath};

/// Validates a `caBundle` (base64 of PEM).
pub(super) fn validate(bundle: &str, path: &FieldPath) -> Option<FieldError> {
    let bytes = STANDARD.decode(bundle).unwrap_or_default();
    let problem = ca_bundle_problem(&bytes)?;
    Some(FieldError::invalid(path, bundle, problem))
}

/// Returns the reason why a bundle of CAs (PEM) cannot be used, as Go words it.
pub fn ca_bundle_problem(pem: &[u8]) -> Option<String> {
    let problem = problem(&String::from_utf8_lossy(pem))?;
    Some(format!("unable to load root certificates: {problem}"))
}

fn problem(pem: &str) -> Option<String> {
    let mut blocks = Blocks { rest: pem };
    let mut seen = false;
    let mut broken = None;
    while let Some((label, der)) = blocks.next() {
        seen = true;
        if label != "CERTIFICATE" {
            continue;
        }
        match der.filter(|der| is_sequence(der)) {
            // One valid certificate is enough.
            Some(_) => return None,
            None => broken = Some("failed to parse certificate: x509: malformed certificate".to_owned()),
        }
    }
    if !seen {
        return Some("unable to parse bytes as PEM block".to_owned());
    }
    Some(broken.unwrap_or_else(|| "no valid certificate authority data seen".to_owned()))
}

/// Iterates over PEM blocks.
struct Blocks<'t> {
    rest: &'t str,
}

impl<'t> Blocks<'t> {
    /// Returns the next block's label, and its bytes if they decode.
    fn next(&mut self) -> Option<(&'t str, Option<Vec<u8>>)> {
        let (_, after) = self.rest.split_once("-----BEGIN ")?;
        let (label, body) = after.split_once("-----")?;
        let (body, rest) = body.split_once("-----END ")?;
        self.rest = rest;
        let base64: String = body.split_ascii_whitespace().collect();
        Some((label, STANDARD.decode(base64).ok()))
    }
}

/// Returns whether bytes are exactly one DER sequence, the outermost element of a certificate.
fn is_sequence(der: &[u8]) -> bool {
    let [0x30, first, rest @ ..] = der else { return false };
    if *first < 0x80 {
        return usize::from(*first) == rest.len();
    }
    let count = usize::from(first & 0x7f);
    let Some((length, content)) = rest.split_at_checked(count).filter(|_| (1..=4).contains(&count)) else {
        return false;
    };
    let length = length.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
    length == content.len()
}
