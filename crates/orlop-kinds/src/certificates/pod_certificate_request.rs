//! PodCertificateRequest: a kubelet's request for a pod's certificate.

use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::{
    field_error::{FieldError, FieldPath},
    object_meta,
    time::Time,
};
use serde_json::{Value, json};
use x509_parser::{
    certification_request::X509CertificationRequest, pem::Pem, prelude::FromDer, public_key::PublicKey,
    x509::SubjectPublicKeyInfo,
};

use super::{
    certificate_signing_request::validate_signer_name,
    proof_of_possession::{self, ED25519, P256, P384, P521},
};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, list, map, present, text},
    equality::semantically_equal,
    printer::{ColumnDefinition, PrinterColumns, format_labels, name},
    strategy::{RequestContext, Strategy},
    update_scope::STATUS_WITHOUT_METADATA,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { allow_unconditional_update: false, ..StrategyFlags::BUILTIN },
    selectable_fields: &["spec.signerName", "spec.podName", "spec.nodeName"],
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    strategy: &PodCertificateRequest,
    ..BuiltinKind::new("certificates.k8s.io", "podcertificaterequests")
};

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("PodName"),
        ColumnDefinition::text("ServiceAccountName"),
        ColumnDefinition::text("NodeName"),
        ColumnDefinition::text("SignerName"),
        ColumnDefinition::text("State"),
        ColumnDefinition::text("UnverifiedUserAnnotations"),
    ],
    cells: |object, _| {
        let field = |pointer| text(object, pointer).into();
        let mut conditions =
            list(object, "/status/conditions").iter().map(|condition| text(condition, "/type"));
        let state =
            conditions.rfind(|kind| matches!(*kind, "Issued" | "Denied" | "Failed")).unwrap_or("Pending");
        vec![
            name(object),
            field("/spec/podName"),
            field("/spec/serviceAccountName"),
            field("/spec/nodeName"),
            field("/spec/signerName"),
            state.into(),
            format_labels(map(object, "/spec/unverifiedUserAnnotations")),
        ]
    },
};

/// Longest lifetimes in seconds: of certificates of Kubernetes' own signers, and of others.
const KUBERNETES_EXPIRATION_SECONDS_MAX: i64 = 24 * 60 * 60;
const EXPIRATION_SECONDS_MAX: i64 = 91 * 24 * 60 * 60;
const EXPIRATION_SECONDS_MIN: i64 = 60 * 60;
const UID_LENGTH_MAX: usize = 128;
/// Bytes of a request, of a key and of a proof.
const REQUEST_BYTES_MAX: usize = 10 * 1024;
const CHAIN_BYTES_MAX: usize = 100 * 1024;
/// Time between the limits of a certificate and its refresh.
const REFRESH_MARGIN_SECONDS: i64 = 10 * 60;

const KNOWN_CONDITIONS: &[&str] = &["Issued", "Denied", "Failed"];

pub(crate) struct PodCertificateRequest;

impl Strategy for PodCertificateRequest {
    fn prepare_for_create(&self, object: &mut Value, _context: &RequestContext<'_>) {
        object["status"] = json!({});
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = FieldPath::root("spec");
        let signer = text(object, "/spec/signerName");
        let mut errors = validate_signer_name(signer, &spec.child("signerName"));
        let annotations = map(object, "/spec/unverifiedUserAnnotations");
        errors
            .extend(object_meta::validate_annotations(annotations, &spec.child("unverifiedUserAnnotations")));
        for (name, uid) in
            [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
        {
            let given = text(object, &format!("/spec/{name}"));
            errors.extend(validation::validate_dns_subdomain(given, &spec.child(name)));
            match text(object, &format!("/spec/{uid}")) {
                "" => errors.push(FieldError::invalid(&spec.child(uid), "", "must not be empty")),
                given if given.len() > UID_LENGTH_MAX => {
                    errors.push(FieldError::too_long(&spec.child(uid), UID_LENGTH_MAX));
                }
                _ => {}
            }
        }
        let expiration = spec.child("maxExpirationSeconds");
        let Some(seconds) = present(object, "/spec/maxExpirationSeconds").and_then(Value::as_i64) else {
            errors.push(FieldError::required(&expiration, "must be set"));
            return errors;
        };
        let is_kubernetes = signer.split('/').next().is_some_and(is_kubernetes_domain);
        let most = if is_kubernetes { KUBERNETES_EXPIRATION_SECONDS_MAX } else { EXPIRATION_SECONDS_MAX };
        if !(EXPIRATION_SECONDS_MIN..=most).contains(&seconds) {
            let detail = format!("must be in the range [{EXPIRATION_SECONDS_MIN}, {most}]");
            errors.push(FieldError::invalid(&expiration, seconds, detail));
        }
        errors.extend(validate_key(object, &spec));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validation::validate_immutable(object, old, "spec", &FieldPath::nil()).into_iter().collect()
    }

    fn validate_replacement(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        match subresource {
            "status" => validate_status(object, old),
            _ => self.validate_update(object, old),
        }
    }
}

fn is_kubernetes_domain(domain: &str) -> bool {
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}

/// Returns the bytes of a field.
fn bytes(object: &Value, pointer: &str) -> Vec<u8> {
    STANDARD.decode(text(object, pointer)).unwrap_or_default()
}

/// Validates that a request has one key, in a PKCS#10 request or in the deprecated fields, and proves that its maker holds it.
fn validate_key(object: &Value, spec: &FieldPath) -> Option<FieldError> {
    let [request, key, proof] = ["stubPKCS10Request", "pkixPublicKey", "proofOfPossession"]
        .map(|field| bytes(object, &format!("/spec/{field}")));
    match (request.is_empty(), key.is_empty(), proof.is_empty()) {
        (false, true, true) => {
            let path = spec.child("stubPKCS10Request");
            if request.len() > REQUEST_BYTES_MAX {
                return Some(FieldError::too_long(&path, REQUEST_BYTES_MAX));
            }
            let invalid = |why: &str| Some(FieldError::invalid(&path, "", why).without_value());
            let Ok(([], parsed)) = X509CertificationRequest::from_der(&request) else {
                return invalid("must be a valid PKCS#10 CSR");
            };
            key_problem(&parsed.certification_request_info.subject_pki, &path).or_else(|| {
                if proof_of_possession::is_signed(&parsed) { None } else { invalid("invalid signature") }
            })
        }
        (true, false, false) => {
            let path = spec.child("pkixPublicKey");
            if key.len() > REQUEST_BYTES_MAX {
                return Some(FieldError::too_long(&path, REQUEST_BYTES_MAX));
            }
            let proof_path = spec.child("proofOfPossession");
            if proof.len() > REQUEST_BYTES_MAX {
                return Some(FieldError::too_long(&proof_path, REQUEST_BYTES_MAX));
            }
            let Ok(([], parsed)) = SubjectPublicKeyInfo::from_der(&key) else {
                let given = text(object, "/spec/pkixPublicKey");
                return Some(FieldError::invalid(&path, given, "must be a valid PKIX-serialized public key"));
            };
            key_problem(&parsed, &path).or_else(|| {
                if proof_of_possession::is_proved(&parsed, text(object, "/spec/podUID"), &proof) {
                    return None;
                }
                let detail = "could not verify proof-of-possession signature";
                Some(FieldError::invalid(&proof_path, "", detail).without_value())
            })
        }
        _ => {
            let detail =
                "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            Some(FieldError::invalid(spec, "", detail).without_value())
        }
    }
}

/// Returns the error of a key of a type or size that is not allowed.
fn key_problem(key: &SubjectPublicKeyInfo<'_>, path: &FieldPath) -> Option<FieldError> {
    if key.algorithm.algorithm.to_id_string() == ED25519 {
        return None;
    }
    match key.parsed() {
        Ok(PublicKey::EC(_)) => {
            let curve = proof_of_possession::curve(key);
            (![P256, P384, P521].contains(&curve.as_str())).then(|| {
                let detail = "elliptic public keys must use curve P256, P384, or P521";
                FieldError::invalid(path, format!("curve {curve}"), detail)
            })
        }
        Ok(PublicKey::RSA(key)) => {
            let bits = key.key_size();
            (!matches!(bits, 3072 | 4096)).then(|| {
                let detail = "RSA keys must have modulus size 3072 or 4096";
                FieldError::invalid(path, format!("{bits}-bit modulus"), detail)
            })
        }
        _ => {
            let detail = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
            Some(FieldError::invalid(path, "", detail).without_value())
        }
    }
}

fn has(object: &Value, kinds: &[&str]) -> bool {
    list(object, "/status/conditions").iter().any(|condition| kinds.contains(&text(condition, "/type")))
}

/// Validates a status. It changes once: to issued, denied or failed.
fn validate_status(object: &Value, old: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("status");
    let errors = validate_conditions(object, &path.child("conditions"));
    if !errors.is_empty() {
        return errors;
    }
    let none = json!({});
    let status = |of: &'_ Value| of.get("status").cloned().unwrap_or_else(|| none.clone());
    let equal_or = |wanted: &Value, detail: &str| {
        let differs = !semantically_equal(&status(object), wanted);
        let error = || FieldError::invalid(&path, "", detail).without_value();
        differs.then(error).into_iter().collect::<Vec<_>>()
    };
    if has(old, KNOWN_CONDITIONS) {
        let detail = "immutable after PodCertificateRequest is issued, denied, or failed";
        return equal_or(&status(old), detail);
    }
    if has(object, &["Denied", "Failed"]) {
        let conditions = object.pointer("/status/conditions").cloned().unwrap_or_default();
        let detail =
            "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
        return equal_or(&json!({"conditions": conditions}), detail);
    }
    if has(object, &["Issued"]) {
        return validate_issued(object, &path).err().unwrap_or_default();
    }
    equal_or(
        &status(old),
        "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"",
    )
}

/// Validates that at most one known condition is there, and that it is true.
fn validate_conditions(object: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let conditions = list(object, "/status/conditions");
    for (index, condition) in conditions.iter().enumerate() {
        // Kubernetes' path has a dot before the index.
        let (kind, at) = (text(condition, "/type"), path.child(&format!("[{index}]")));
        if !KNOWN_CONDITIONS.contains(&kind) {
            errors.push(FieldError::not_supported(&at.child("type"), kind, KNOWN_CONDITIONS));
            continue;
        }
        if conditions[..index].iter().any(|other| KNOWN_CONDITIONS.contains(&text(other, "/type"))) {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.push(FieldError::invalid(&at.child("type"), kind, detail));
        }
        if text(condition, "/status") != "True" {
            let status = text(condition, "/status");
            errors.push(FieldError::not_supported(&at.child("status"), status, &["True"]));
        }
        if text(condition, "/reason").is_empty() {
            errors.push(FieldError::required(&path.index(index).child("reason"), ""));
        }
        if text(condition, "/lastTransitionTime").is_empty() {
            errors.push(FieldError::required(&path.index(index).child("lastTransitionTime"), ""));
        }
    }
    errors
}

/// Validates an issued certificate: it is for the requested key, and the times of the status are its own.
fn validate_issued(object: &Value, path: &FieldPath) -> Result<(), Vec<FieldError>> {
    let (chain, at) = (text(object, "/status/certificateChain"), path.child("certificateChain"));
    let refuse = |detail: &str| vec![FieldError::invalid(&at, chain, detail)];
    if chain.len() > CHAIN_BYTES_MAX {
        return Err(vec![FieldError::too_long(&at, CHAIN_BYTES_MAX)]);
    }
    let blocks: Vec<Pem> = Pem::iter_from_buffer(chain.as_bytes()).filter_map(Result::ok).collect();
    let Some((leaf, rest)) = blocks.split_first() else {
        return Err(refuse("issued certificate chain must contain at least one certificate"));
    };
    if leaf.label != "CERTIFICATE" {
        return Err(refuse("issued certificate chain must consist entirely of CERTIFICATE PEM blocks"));
    }
    let Ok(leaf) = leaf.parse_x509() else {
        return Err(refuse("leaf certificate does not parse as valid X.509"));
    };
    let (request, key) = (bytes(object, "/spec/stubPKCS10Request"), bytes(object, "/spec/pkixPublicKey"));
    let wanted = match X509CertificationRequest::from_der(&request) {
        Ok((_, request)) => request.certification_request_info.subject_pki.raw.to_vec(),
        Err(_) => key,
    };
    if leaf.public_key().raw != wanted {
        return Err(refuse("leaf certificate was not issued to the requested public key"));
    }
    let time = |field: &str| Time::parse(text(object, &format!("/status/{field}")));
    let consistent = "must be present and consistent with the issued certificate";
    let mut errors = Vec::new();
    for (field, detail) in [
        ("notBefore", consistent),
        ("notAfter", consistent),
        ("beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]"),
    ] {
        if time(field).is_none() {
            errors.push(FieldError::required(&path.child(field), detail));
        }
    }
    let (Some(begin), Some(end), Some(refresh)) =
        (time("notBefore"), time("notAfter"), time("beginRefreshAt"))
    else {
        return Err(errors);
    };
    let wrong = |field: &str, detail: &str| {
        let given = text(object, &format!("/status/{field}"));
        Err(vec![FieldError::invalid(&path.child(field), given, detail)])
    };
    let validity = leaf.validity();
    if begin.unix_seconds != validity.not_before.timestamp() {
        return wrong("notBefore", "must be set to the NotBefore time encoded in the leaf certificate");
    }
    if end.unix_seconds != validity.not_after.timestamp() {
        return wrong("notAfter", "must be set to the NotAfter time encoded in the leaf certificate");
    }
    let lifetime = end.unix_seconds - begin.unix_seconds;
    let most = integer(object, "/spec/maxExpirationSeconds");
    if lifetime < EXPIRATION_SECONDS_MIN {
        return Err(vec![FieldError::invalid(&at, lifetime, "leaf certificate lifetime must be >= 1 hour")]);
    }
    if lifetime > most {
        let detail = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})");
        return Err(vec![FieldError::invalid(&at, lifetime, detail)]);
    }
    if refresh.unix_seconds < begin.unix_seconds + REFRESH_MARGIN_SECONDS {
        return wrong("beginRefreshAt", "must be at least 10 minutes after status.notBefore");
    }
    if refresh.unix_seconds > end.unix_seconds - REFRESH_MARGIN_SECONDS {
        return wrong("beginRefreshAt", "must be at least 10 minutes before status.notAfter");
    }
    if rest.iter().any(|block| block.label != "CERTIFICATE") {
        return Err(refuse("issued certificate chain must consist entirely of CERTFICATE PEM blocks"));
    }
    if rest.iter().any(|block| block.parse_x509().is_err()) {
        return Err(refuse("intermediate certificate does not parse as valid X.509"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PublicKeyData, SigningKey};

    use super::*;

    fn request(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "r"}, "spec": {
            "signerName": "example.com/pods", "podName": "p", "podUID": "1", "serviceAccountName": "s",
            "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "maxExpirationSeconds": 86_400,
        }});
        if let (Some(fields), Some(given)) = (object["spec"].as_object_mut(), spec.as_object()) {
            fields.extend(given.clone());
        }
        object
    }

    fn messages(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_lifetimes_and_the_key_are_validated() {
        let validate = |spec: Value| messages(PodCertificateRequest.validate(&request(spec)));
        let key = "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must \
                   be set";
        assert_eq!(validate(json!({})), [key]);
        assert_eq!(
            validate(json!({"podUID": "", "maxExpirationSeconds": 60})),
            [
                "spec.podUID: Invalid value: \"\": must not be empty",
                "spec.maxExpirationSeconds: Invalid value: 60: must be in the range [3600, 7862400]",
                key,
            ]
        );
        assert_eq!(
            validate(
                json!({"signerName": "kubernetes.io/kube-apiserver-client-pod", "maxExpirationSeconds": 90_000})
            )[0],
            "spec.maxExpirationSeconds: Invalid value: 90000: must be in the range [3600, 86400]"
        );
        assert_eq!(
            validate(json!({"stubPKCS10Request": "AAAA"})),
            ["spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR"]
        );
        assert_eq!(
            validate(json!({"maxExpirationSeconds": null})),
            ["spec.maxExpirationSeconds: Required value: must be set"]
        );
    }

    #[test]
    fn certificate_is_only_for_a_key_that_its_requester_holds() {
        let validate = |spec: Value| messages(PodCertificateRequest.validate(&request(spec)));
        let stub = |der: &[u8]| validate(json!({"stubPKCS10Request": STANDARD.encode(der)}));
        for algorithm in [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_ECDSA_P521_SHA512,
            &rcgen::PKCS_ED25519,
        ] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let signed = CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
            assert_eq!(stub(&signed), [""; 0], "{algorithm:?}");
            // The key of somebody else in a request of one's own.
            let mut other = signed.clone();
            let other_key = KeyPair::generate_for(algorithm).unwrap();
            let at = other.windows(key.der_bytes().len()).position(|part| part == key.der_bytes()).unwrap();
            other[at..at + key.der_bytes().len()].copy_from_slice(other_key.der_bytes());
            assert_eq!(stub(&other), ["spec.stubPKCS10Request: Invalid value: invalid signature"]);
            let trailing = [signed.as_slice(), &[0]].concat();
            assert_eq!(
                stub(&trailing),
                ["spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR"]
            );
        }
        let key = KeyPair::generate().unwrap();
        let proof = |pod_uid: &str, key: &KeyPair| STANDARD.encode(key.sign(pod_uid.as_bytes()).unwrap());
        let proved = |proof: String| {
            let public = STANDARD.encode(key.subject_public_key_info());
            validate(json!({"pkixPublicKey": public, "proofOfPossession": proof}))
        };
        assert_eq!(proved(proof("1", &key)), [""; 0]);
        for forged in [proof("2", &key), proof("1", &KeyPair::generate().unwrap()), STANDARD.encode("x")] {
            assert_eq!(
                proved(forged),
                ["spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature"]
            );
        }
    }

    #[test]
    fn status_changes_once() {
        let with = |conditions: Value, chain: &str| {
            let mut object = request(json!({}));
            object["status"] = json!({"conditions": conditions, "certificateChain": chain});
            object
        };
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let pending = request(json!({}));
        let validate = |object: &Value, old: &Value| {
            messages(PodCertificateRequest.validate_replacement(object, old, "status"))
        };
        let denied = with(json!([condition("Denied", "True")]), "");
        assert_eq!(
            validate(&with(json!([condition("Denied", "True")]), "x"), &pending),
            ["status: Invalid value: non-condition status fields must be empty when denying or failing the \
              PodCertificateRequest"]
        );
        assert_eq!(
            validate(&with(json!([condition("Failed", "True")]), ""), &denied),
            ["status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed"]
        );
        assert_eq!(
            validate(&with(json!([condition("Other", "True")]), ""), &pending),
            [
                "status.conditions.[0].type: Unsupported value: \"Other\": supported values: \"Issued\", \"Denied\", \
              \"Failed\""
            ]
        );
        assert_eq!(
            validate(&with(json!([condition("Issued", "True")]), "x"), &pending),
            [
                "status.certificateChain: Invalid value: \"x\": issued certificate chain must contain at least one \
              certificate"
            ]
        );
    }
}
