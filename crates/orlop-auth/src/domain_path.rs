//! Validation of domain-prefixed paths: `example.com/scope`.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names::{dns1123_subdomain, pattern_message},
};

/// Validates a domain-prefixed path, in Kubernetes' words.
pub fn check(path: &FieldPath, value: &str) -> Vec<FieldError> {
    if value.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let Some((host, rest)) =
        value.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![FieldError::invalid(path, value, detail)];
    };
    let mut errors: Vec<FieldError> =
        dns1123_subdomain(host).into_iter().map(|why| FieldError::invalid(path, host, why)).collect();
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !rest.bytes().all(is_allowed) {
        let detail = pattern_message("Invalid path", "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+", &[]);
        errors.push(FieldError::invalid(path, rest, detail));
    }
    errors
}
