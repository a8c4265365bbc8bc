//! Validation of projected volumes.

use std::collections::HashSet;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels::validate_label_selector,
};
use serde_json::Value;

use super::volume_files::{
    validate_downward_api_file, validate_file_mode, validate_key_to_path, validate_local_non_reserved_path,
};
use crate::{
    accessors::{integer, list, present, text},
    certificates::{validate_bundle_name, validate_signer_name},
    validation,
};

const KEY_TYPES: &[&str] = &["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];

/// Validates a projected volume.
pub(super) fn validate_projected<'a>(source: &'a Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = validate_file_mode(source, "defaultMode", path).into_iter().collect();
    let mut paths = Paths { volume: path, taken: HashSet::new() };
    for (index, part) in list(source, "/sources").iter().enumerate() {
        let at = path.child("sources").index(index);
        let given: Vec<(&'a String, &'a Value)> =
            part.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()).collect();
        for &(kind, value) in &given {
            let path = at.child(kind);
            errors.extend(match kind.as_str() {
                "secret" | "configMap" => validate_keys(value, &path, &mut paths),
                "downwardAPI" => validate_downward_api(value, &path, &mut paths),
                "serviceAccountToken" => validate_token(value, &path),
                "clusterTrustBundle" => validate_trust_bundle(value, &path, &mut paths),
                "podCertificate" => validate_pod_certificate(value, &path, &mut paths),
                _ => Vec::new(),
            });
        }
        if given.len() > 1 {
            errors.push(FieldError::forbidden(&at, "may not specify more than 1 volume type per source"));
        }
    }
    errors
}

/// Paths of the files of a volume.
struct Paths<'a, 'p> {
    volume: &'p FieldPath,
    taken: HashSet<&'a str>,
}

impl<'a> Paths<'a, '_> {
    /// Takes a path. A conflict names the volume and `value`.
    fn take(&mut self, file: &'a str, value: &str) -> Option<FieldError> {
        let is_taken = !self.taken.insert(file);
        is_taken.then(|| FieldError::invalid(self.volume, value, "conflicting duplicate paths"))
    }
}

fn validate_keys<'a>(source: &'a Value, path: &FieldPath, paths: &mut Paths<'a, '_>) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = validation::require_text(source, "name", path).into_iter().collect();
    for (index, item) in list(source, "/items").iter().enumerate() {
        errors.extend(validate_key_to_path(item, &path.child("items").index(index)));
        let file = text(item, "/path");
        if !file.is_empty() {
            errors.extend(paths.take(file, text(source, "/name")));
        }
    }
    errors
}

fn validate_downward_api<'a>(
    source: &'a Value,
    path: &FieldPath,
    paths: &mut Paths<'a, '_>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for item in list(source, "/items") {
        errors.extend(validate_downward_api_file(item, path));
        let file = text(item, "/path");
        if !file.is_empty() {
            errors.extend(paths.take(file, file));
        }
    }
    errors
}

fn validate_token(token: &Value, path: &FieldPath) -> Vec<FieldError> {
    const SECONDS_MIN: i64 = 600;
    const SECONDS_MAX: i64 = 1 << 32;
    let mut errors = Vec::new();
    let seconds = token.get("expirationSeconds").and_then(Value::as_i64).unwrap_or_default();
    if seconds < SECONDS_MIN {
        let detail = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(&path.child("expirationSeconds"), seconds, detail));
    } else if seconds > SECONDS_MAX {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(&path.child("expirationSeconds"), seconds, detail));
    }
    match text(token, "/path") {
        "" => errors.push(FieldError::required(&path.child("path"), "")),
        given => errors.extend(validate_local_non_reserved_path(given, &path.child("path"))),
    }
    errors
}

fn validate_trust_bundle<'a>(
    bundle: &'a Value,
    path: &FieldPath,
    paths: &mut Paths<'a, '_>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let selector = present(bundle, "/labelSelector");
    match (present(bundle, "/name"), present(bundle, "/signerName")) {
        (Some(_), Some(_)) => {
            let detail = "only one of name and signerName may be used";
            errors.push(FieldError::invalid(path, bundle.clone(), detail));
        }
        (Some(_), None) => {
            let name = text(bundle, "/name");
            if name.is_empty() {
                errors.push(FieldError::required(&path.child("name"), "must be a valid object name"));
            }
            errors.extend(validate_bundle_name(name, &path.child("name")));
            if let Some(selector) = selector {
                let detail = "labelSelector must be unset if name is specified";
                errors.push(FieldError::invalid(&path.child("labelSelector"), selector.clone(), detail));
            }
        }
        (None, Some(_)) => {
            let (at, signer, path) = (path, text(bundle, "/signerName"), path.child("signerName"));
            if signer.is_empty() {
                errors.push(FieldError::required(&path, "must be a valid signer name"));
            }
            errors.extend(validate_signer_name(signer, &path));
            if let Some(selector) = selector {
                errors.extend(validate_label_selector(selector, &at.child("labelSelector")));
            }
        }
        (None, None) => {
            errors.push(FieldError::required(path, "either name or signerName must be specified"));
        }
    }
    let file = text(bundle, "/path");
    if file.is_empty() {
        errors.push(FieldError::required(&path.child("path"), ""));
    }
    errors.extend(validate_local_non_reserved_path(file, &path.child("path")));
    errors.extend(paths.take(file, file));
    errors
}

fn validate_pod_certificate<'a>(
    certificate: &'a Value,
    path: &FieldPath,
    paths: &mut Paths<'a, '_>,
) -> Vec<FieldError> {
    const SECONDS_MIN: i64 = 60 * 60;
    const SECONDS_MAX: i64 = 91 * 24 * 60 * 60;
    /// Of signers under Kubernetes' own domain.
    const KUBERNETES_SECONDS_MAX: i64 = 24 * 60 * 60;
    let signer = text(certificate, "/signerName");
    let mut errors = validate_signer_name(signer, &path.child("signerName"));
    let key_type = text(certificate, "/keyType");
    if !KEY_TYPES.contains(&key_type) {
        errors.push(FieldError::not_supported(&path.child("keyType"), key_type, KEY_TYPES));
    }
    if present(certificate, "/maxExpirationSeconds").is_some() {
        let path = path.child("maxExpirationSeconds");
        let seconds = integer(certificate, "/maxExpirationSeconds");
        let domain = signer.split('/').next().unwrap_or_default();
        let is_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
        let seconds_max = if is_kubernetes { KUBERNETES_SECONDS_MAX } else { SECONDS_MAX };
        if seconds < SECONDS_MIN {
            let detail = format!("if provided, maxExpirationSeconds must be >= {SECONDS_MIN}");
            errors.push(FieldError::invalid(&path, seconds, detail));
        } else if seconds > seconds_max {
            let detail = format!("if provided, maxExpirationSeconds must be <= {seconds_max}");
            errors.push(FieldError::invalid(&path, seconds, detail));
        }
    }
    let mut has_path = false;
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let Some(file) = certificate.get(field).and_then(Value::as_str).filter(|file| !file.is_empty())
        else {
            continue;
        };
        has_path = true;
        errors.extend(validate_local_non_reserved_path(file, &path.child(field)));
        errors.extend(paths.take(file, file));
    }
    if !has_path {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.push(FieldError::required(path, detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    fn check(source: Value) -> Vec<String> {
        messages(validate_projected(&json!({"sources": [source]}), &FieldPath::root("p")))
    }

    #[test]
    fn pod_certificate_has_a_lifetime_a_key_and_a_file() {
        let good = json!({"signerName": "a.b/c", "keyType": "ED25519", "maxExpirationSeconds": 3600, "keyPath": "k"});
        assert!(check(json!({"podCertificate": good})).is_empty());
        let with = |field: &str, value: Value| {
            let mut changed = good.clone();
            changed[field] = value;
            check(json!({"podCertificate": changed}))
        };
        let at = "p.sources[0].podCertificate";
        assert_eq!(
            with("maxExpirationSeconds", json!(3599)),
            [format!(
                "{at}.maxExpirationSeconds: Invalid value: 3599: if provided, maxExpirationSeconds must be >= 3600"
            )]
        );
        assert_eq!(
            with("maxExpirationSeconds", json!(7_862_401)),
            [format!(
                "{at}.maxExpirationSeconds: Invalid value: 7862401: if provided, maxExpirationSeconds must be <= 7862400"
            )]
        );
        assert_eq!(
            with("keyPath", json!("")),
            [format!(
                "{at}: Required value: specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
            )]
        );
        assert_eq!(
            with("certificateChainPath", json!("k")),
            ["p: Invalid value: \"k\": conflicting duplicate paths"]
        );
        assert_eq!(with("keyType", json!("RSA")).len(), 1);
    }

    #[test]
    fn trust_bundle_is_named_or_selected() {
        let at = "p.sources[0].clusterTrustBundle";
        assert!(check(json!({"clusterTrustBundle": {"name": "a.b:c:d", "path": "x"}})).is_empty());
        assert!(check(json!({"clusterTrustBundle": {"signerName": "a.b/c", "path": "x"}})).is_empty());
        assert_eq!(
            check(json!({"clusterTrustBundle": {"path": "x"}})),
            [format!("{at}: Required value: either name or signerName must be specified")]
        );
        assert_eq!(
            check(json!({"clusterTrustBundle": {"name": "a", "labelSelector": {}, "path": "x"}})),
            [format!(
                "{at}.labelSelector: Invalid value: {{}}: labelSelector must be unset if name is specified"
            )]
        );
    }

    #[test]
    fn source_has_one_type() {
        let both = json!({"secret": {"name": "s"}, "configMap": {"name": "c"}});
        assert_eq!(
            check(both),
            ["p.sources[0]: Forbidden: may not specify more than 1 volume type per source"]
        );
    }
}
