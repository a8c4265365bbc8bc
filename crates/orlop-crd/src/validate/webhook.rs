//! Validation of webhook client configurations.

use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::names::dns1123_subdomain;
use orlop_api::schema::unstructured::text;
use serde_json::Value;

const FORM: &str = "; desired format: https://host[/path]";

/// Validates a webhook's URL.
pub fn validate_webhook_url(url: &str, path: &FieldPath) -> Vec<FieldError> {
    let parts = match Parts::of(url) {
        Ok(parts) => parts,
        Err(problem) => {
            let detail = format!("url must be a valid URL: {problem}{FORM}");
            return vec![FieldError::required(path, detail)];
        }
    };
    let mut errors = Vec::new();
    if parts.scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(path, parts.scheme.as_str(), detail));
    }
    if parts.host.is_empty() {
        errors.push(FieldError::invalid(path, "", format!("host must be specified{FORM}")));
    }
    if let Some(user) = parts.user {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    if !parts.fragment.is_empty() {
        errors.push(FieldError::invalid(path, parts.fragment, "fragments are not permitted in the URL"));
    }
    if !parts.query.is_empty() {
        errors.push(FieldError::invalid(path, parts.query, "query parameters are not permitted in the URL"));
    }
    errors
}

/// A URL, parsed as Go does.
#[derive(Default)]
struct Parts<'u> {
    scheme: String,
    user: Option<&'u str>,
    host: &'u str,
    query: &'u str,
    fragment: &'u str,
}

impl<'u> Parts<'u> {
    fn of(url: &'u str) -> Result<Self, String> {
        let refused = |problem: &str| Err(format!("parse {}: {problem}", orlop_api::go_text::quote(url)));
        if url.chars().any(|character| character.is_ascii_control()) {
            return refused("net/url: invalid control character in URL");
        }
        let mut parts = Self::default();
        let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
        parts.fragment = fragment;
        let rest = match rest.split_once(':') {
            Some(("", _)) => return refused("missing protocol scheme"),
            Some((scheme, after)) if is_scheme(scheme) => {
                parts.scheme = scheme.to_ascii_lowercase();
                after
            }
            Some((first, _)) if !first.contains('/') && !first.contains('?') => {
                let digit = first.starts_with(|c: char| !c.is_ascii_alphabetic());
                return refused(if digit {
                    "first path segment in URL cannot contain colon"
                } else {
                    "missing protocol scheme"
                });
            }
            _ => rest,
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        parts.query = query;
        if let Some(authority) = rest.strip_prefix("//") {
            let authority = authority.split('/').next().unwrap_or_default();
            let (user, host) = match authority.rsplit_once('@') {
                Some((user, host)) => (Some(user), host),
                None => (None, authority),
            };
            (parts.user, parts.host) = (user, host);
            if let Some(bad) = host.chars().find(|c| c.is_whitespace() || "\"<>\\^`{|}".contains(*c)) {
                return refused(&format!(
                    "invalid character {} in host name",
                    orlop_api::go_text::quote(&bad.to_string())
                ));
            }
            let port = host.rsplit_once(']').map_or(host, |(_, after)| after);
            if let Some((_, port)) = port.split_once(':')
                && !port.bytes().all(|byte| byte.is_ascii_digit())
            {
                return refused(&format!(
                    "invalid port {} after host",
                    orlop_api::go_text::quote(&format!(":{port}"))
                ));
            }
        }
        if let Some(escape) = bad_escape(rest) {
            return refused(&format!("invalid URL escape {}", orlop_api::go_text::quote(escape)));
        }
        Ok(parts)
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// Returns the first invalid percent escape.
fn bad_escape(text: &str) -> Option<&str> {
    let hexadecimal =
        |escape: &str| escape.len() == 3 && escape[1..].bytes().all(|byte| byte.is_ascii_hexdigit());
    text.match_indices('%')
        .map(|(start, _)| text.get(start..start + 3).unwrap_or(&text[start..]))
        .find(|escape| !hexadecimal(escape))
}

/// Validates a webhook's service reference.
pub fn validate_webhook_service(service: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // Kubernetes swaps these two arguments, and so the reported paths.
    for (key, reported) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, key).is_empty() {
            errors.push(FieldError::required(&path.child(reported), ""));
        }
    }
    let port = service.get("port").and_then(Value::as_i64).unwrap_or_default();
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(&path.child("port"), port, detail));
    }
    let url_path = text(service, "path");
    let path = path.child("path");
    let mut refuse = |detail: String| errors.push(FieldError::invalid(&path, url_path, detail));
    match url_path {
        "" | "/" => return errors,
        "//" => {
            refuse("segment[0] may not be empty".to_owned());
            return errors;
        }
        _ => {}
    }
    if !url_path.starts_with('/') {
        refuse("must start with a '/'".to_owned());
    }
    // Kubernetes strips the first character, whatever it is, and a trailing slash.
    let mut characters = url_path.chars();
    characters.next();
    let segments = characters.as_str();
    for (index, segment) in segments.strip_suffix('/').unwrap_or(segments).split('/').enumerate() {
        if segment.is_empty() {
            refuse(format!("segment[{index}] may not be empty"));
            continue;
        }
        dns1123_subdomain(segment).iter().for_each(|why| refuse(format!("segment[{index}]: {why}")));
    }
    errors
}
