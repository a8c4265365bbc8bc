//! Certificates: requests for them, bundles of trust, and requests of pods.

use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::{
    duration,
    field_error::{FieldError, FieldPath},
};
use serde_json::Value;

use super::{
    check,
    columns::{Heading, Table, labels, name},
    fill,
    read::{condition, integer, list, map, present, text, text_or, texts},
    signing_conditions,
};
use crate::{
    User,
    object::now,
    registry::Hooks,
    table::{Columns, age},
};

/// The shortest certificate that may be asked for.
const EXPIRATION_SECONDS_MIN: i64 = 600;
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(super) static CLUSTER_TRUST_BUNDLES: Table = Table {
    headings: &[Heading::NAME, Heading::text("SignerName")],
    cells: |object, _| vec![name(object), text_or(object, "/spec/signerName", "<none>").into()],
};

pub(super) static POD_CERTIFICATE_REQUESTS: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::text("PodName"),
        Heading::text("ServiceAccountName"),
        Heading::text("NodeName"),
        Heading::text("SignerName"),
        Heading::text("State"),
        Heading::text("UnverifiedUserAnnotations"),
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
            labels(map(object, "/spec/unverifiedUserAnnotations")),
        ]
    },
};

static SIGNING_REQUESTS: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::AGE,
        Heading::text("SignerName"),
        Heading::text("Requestor"),
        Heading::text("RequestedDuration"),
        Heading::text("Condition"),
    ],
    cells: |object, now| {
        let asked = present(object, "/spec/expirationSeconds").and_then(Value::as_i64);
        vec![
            name(object),
            age(object, now),
            text_or(object, "/spec/signerName", "<none>").into(),
            text(object, "/spec/username").into(),
            asked.map_or_else(|| "<none>".to_owned(), duration::human).into(),
            outcome(object).into(),
        ]
    },
};

fn outcome(request: &Value) -> String {
    let has = |kind: &str| condition(request, kind).is_some();
    let mut outcome = if has("Denied") {
        "Denied".to_owned()
    } else if has("Approved") {
        "Approved".to_owned()
    } else {
        "Pending".to_owned()
    };
    if has("Failed") {
        outcome.push_str(",Failed");
    }
    if !text(request, "/status/certificate").is_empty() {
        outcome.push_str(",Issued");
    }
    outcome
}

/// Requests that a signer should make a certificate.
pub(super) struct CertificateSigningRequest;

impl Hooks for CertificateSigningRequest {
    fn set_creator(&self, object: &mut Value, creator: &User) {
        let Some(spec) = fill::child(object, "spec").and_then(Value::as_object_mut) else { return };
        for field in ["uid", "extra"] {
            spec.remove(field);
        }
        spec.insert("username".into(), creator.name.clone().into());
        spec.insert("groups".into(), creator.groups.clone().into());
    }

    fn prepare_subresource(&self, subresource: &str, object: &mut Value, old: &Value) {
        if subresource == "status" {
            signing_conditions::keep_decisions(object, old);
        }
        signing_conditions::stamp(object, old, now());
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = FieldPath::root("spec");
        let mut errors = Vec::new();
        let request = text(object, "/spec/request");
        if !holds(request, "CERTIFICATE REQUEST") {
            let detail = "PEM block type must be CERTIFICATE REQUEST";
            errors.push(FieldError::invalid(&spec.child("request"), request, detail));
        }
        errors.extend(usages(object, &spec.child("usages")));
        let signer = text(object, "/spec/signerName");
        if signer == LEGACY_SIGNER {
            let detail = "the legacy signerName is not allowed via this API version";
            errors.push(FieldError::invalid(&spec.child("signerName"), signer, detail));
        } else {
            errors.extend(signer_name(signer, &spec.child("signerName")));
        }
        if let Some(seconds) = present(object, "/spec/expirationSeconds")
            && integer(object, "/spec/expirationSeconds") < EXPIRATION_SECONDS_MIN
        {
            let detail = "may not specify a duration less than 600 seconds (10 minutes)";
            errors.push(FieldError::invalid(&spec.child("expirationSeconds"), seconds.clone(), detail));
        }
        errors
    }

    fn validate_subresource(&self, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = signing_conditions::validate_change(object, old, subresource);
        let certificate = text(object, "/status/certificate");
        if !certificate.is_empty() && !holds(certificate, "CERTIFICATE") {
            let path = FieldPath::root("status").child("certificate");
            let detail = "must contain at least one CERTIFICATE PEM block";
            errors.push(FieldError::invalid(&path, "<certificate data>", detail));
        }
        errors
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&SIGNING_REQUESTS)
    }
}

/// Whether the bytes have a PEM block of a kind.
fn holds(encoded: &str, kind: &str) -> bool {
    let pem = STANDARD.decode(encoded).unwrap_or_default();
    String::from_utf8_lossy(&pem).contains(&format!("-----BEGIN {kind}-----"))
}

fn usages(object: &Value, path: &FieldPath) -> Vec<FieldError> {
    let usages = texts(object, "/spec/usages");
    if usages.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let mut errors = Vec::new();
    for (index, usage) in usages.iter().enumerate() {
        if !USAGES.contains(usage) {
            errors.push(FieldError::not_supported(&path.index(index), *usage, USAGES));
        }
        if usages[..index].contains(usage) {
            errors.push(FieldError::duplicate(&path.index(index), *usage));
        }
    }
    errors
}

/// A signer is `domain/path`.
fn signer_name(signer: &str, path: &FieldPath) -> Vec<FieldError> {
    if signer.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    match signer.split('/').collect::<Vec<_>>().as_slice() {
        [domain, rest] if !rest.is_empty() => {
            let labels = domain.split('.').count();
            let mut errors = check::each(path, signer, orlop_api::names::dns1123_subdomain(domain));
            if labels < 2 {
                errors.push(FieldError::invalid(
                    path,
                    signer,
                    "should be a domain with at least two segments separated by dots",
                ));
            }
            errors
        }
        _ => vec![FieldError::invalid(
            path,
            signer,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        )],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::check::tests::told, super::columns::tests::row, *};

    #[test]
    fn a_request_tells_what_became_of_it() {
        let request = json!({"metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"signerName": "a.b/c", "username": "u", "expirationSeconds": 3600},
            "status": {"conditions": [{"type": "Approved"}], "certificate": "x"}});
        let expected = json!(["r", "60m", "a.b/c", "u", "60m", "Approved,Issued"]);
        assert_eq!(row(&SIGNING_REQUESTS, &request), expected.as_array().unwrap()[..]);
        assert_eq!(row(&SIGNING_REQUESTS, &json!({}))[5], "Pending");
        assert_eq!(
            outcome(&json!({"status": {"conditions": [{"type": "Denied"}, {"type": "Failed"}]}})),
            "Denied,Failed"
        );
    }

    #[test]
    fn what_is_issued_is_a_certificate() {
        let issued = |certificate: &str| json!({"status": {"certificate": STANDARD.encode(certificate)}});
        let check =
            |object: &Value| told(CertificateSigningRequest.validate_subresource("status", object, object));
        assert!(check(&issued("-----BEGIN CERTIFICATE-----\n")).is_empty() && check(&json!({})).is_empty());
        let refused = "status.certificate: Invalid value: \"<certificate data>\": must contain at least one \
            CERTIFICATE PEM block";
        assert_eq!(check(&issued("-----BEGIN CERTIFICATE REQUEST-----\n")), [refused]);
    }

    #[test]
    fn a_request_is_pem_for_a_signer() {
        let pem = STANDARD.encode("-----BEGIN CERTIFICATE REQUEST-----\n");
        let good = json!({"spec": {"request": pem, "usages": ["client auth"], "signerName": "a.b/c"}});
        assert!(told(CertificateSigningRequest.validate(&good)).is_empty());
        assert_eq!(
            told(
                CertificateSigningRequest.validate(
                    &json!({"spec": {"request": "eA==", "signerName": "x", "expirationSeconds": 5}})
                )
            ),
            [
                r#"spec.request: Invalid value: "eA==": PEM block type must be CERTIFICATE REQUEST"#,
                "spec.usages: Required value",
                r#"spec.signerName: Invalid value: "x": must be a fully qualified domain and path of the form 'example.com/signer-name'"#,
                "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)",
            ]
        );
        let mut made = json!({"spec": {"username": "somebody", "uid": "1"}});
        CertificateSigningRequest.set_creator(&mut made, &User::authenticated("jane", []));
        assert_eq!(made["spec"], json!({"username": "jane", "groups": ["system:authenticated"]}));
    }
}
