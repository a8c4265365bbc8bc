//! CertificateSigningRequest: asks a signer for a certificate.

use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::{
    duration,
    field_error::{FieldError, FieldPath},
    names::NameRule,
};
use serde_json::{Value, json};
use x509_parser::{certification_request::X509CertificationRequest, pem::parse_x509_pem, prelude::FromDer};

use super::signing_conditions;
use crate::{
    BuiltinKind,
    accessors::{condition, integer, present, text, text_or, texts},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::{RequestContext, Strategy},
    update_scope::{ResetFields, UpdateScope, UpdateScopes},
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::PathSegment,
    selectable_fields: &["spec.signerName"],
    update_scopes: UPDATE_SCOPES,
    columns: &COLUMNS,
    strategy: &CertificateSigningRequest,
    ..BuiltinKind::new("certificates.k8s.io", "certificatesigningrequests")
};

/// The request is immutable; each subresource writes its own part of the status.
const UPDATE_SCOPES: UpdateScopes = &[
    ("", UpdateScope::without(&["/spec", "/status"])),
    ("status", UpdateScope::preserving(&["/spec"], &["/spec", "/status/conditions"])),
    (
        "approval",
        UpdateScope {
            preserved: &["/spec", "/status"],
            except: &["/status/conditions"],
            reset: ResetFields::Paths(&["/spec", "/status/certificate"]),
        },
    ),
];

/// Shortest lifetime that may be requested.
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

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::AGE,
        ColumnDefinition::text("SignerName"),
        ColumnDefinition::text("Requestor"),
        ColumnDefinition::text("RequestedDuration"),
        ColumnDefinition::text("Condition"),
    ],
    cells: |object, now| {
        let asked = present(object, "/spec/expirationSeconds").and_then(Value::as_i64);
        vec![
            name(object),
            age(object, now),
            text_or(object, "/spec/signerName", "<none>").into(),
            text(object, "/spec/username").into(),
            asked.map_or_else(|| "<none>".to_owned(), duration::human).into(),
            condition_text(object).into(),
        ]
    },
};

fn condition_text(request: &Value) -> String {
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

pub(crate) struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    /// The server records the requester; clients cannot.
    fn prepare_for_create(&self, object: &mut Value, context: &RequestContext<'_>) {
        let Some(spec) = defaulting::object_mut(object, "spec").and_then(Value::as_object_mut) else {
            return;
        };
        let user = context.user;
        spec.insert("username".into(), user.name.clone().into());
        spec.insert("groups".into(), user.groups.clone().into());
        spec.remove("uid");
        if !user.uid.is_empty() {
            spec.insert("uid".into(), user.uid.clone().into());
        }
        spec.remove("extra");
        if !user.extra.is_empty() {
            spec.insert("extra".into(), json!(user.extra));
        }
    }

    fn prepare_for_subresource_update(
        &self,
        subresource: &str,
        object: &mut Value,
        old: &Value,
        context: &RequestContext<'_>,
    ) {
        if subresource == "status" {
            signing_conditions::restore_decisions(object, old);
        }
        signing_conditions::set_timestamps(object, old, context.now);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = FieldPath::root("spec");
        let mut errors = Vec::new();
        let request = text(object, "/spec/request");
        if let Some(problem) = request_problem(request) {
            let given = object.pointer("/spec/request").cloned().unwrap_or_default();
            errors.push(FieldError::invalid(&spec.child("request"), given, problem));
        }
        errors.extend(validate_usages(object, &spec.child("usages")));
        let signer = text(object, "/spec/signerName");
        if signer == LEGACY_SIGNER {
            let detail = "the legacy signerName is not allowed via this API version";
            errors.push(FieldError::invalid(&spec.child("signerName"), signer, detail));
        } else {
            errors.extend(validate_signer_name(signer, &spec.child("signerName")));
        }
        if let Some(seconds) = present(object, "/spec/expirationSeconds")
            && integer(object, "/spec/expirationSeconds") < EXPIRATION_SECONDS_MIN
        {
            let detail = "may not specify a duration less than 600 seconds (10 minutes)";
            errors.push(FieldError::invalid(&spec.child("expirationSeconds"), seconds.clone(), detail));
        }
        errors
    }

    fn validate_subresource_update(&self, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = signing_conditions::validate_transition(object, old, subresource);
        let certificate = text(object, "/status/certificate");
        if !certificate.is_empty() && !contains_pem_block(certificate, "CERTIFICATE") {
            let path = FieldPath::root("status").child("certificate");
            let detail = "must contain at least one CERTIFICATE PEM block";
            errors.push(FieldError::invalid(&path, "<certificate data>", detail));
        }
        errors
    }
}

/// Returns the problem of a request: it is one PEM block with a certificate signing request.
fn request_problem(encoded: &str) -> Option<String> {
    let decoded = STANDARD.decode(encoded).unwrap_or_default();
    match parse_x509_pem(&decoded) {
        Ok((_, block)) if block.label == "CERTIFICATE REQUEST" => {
            let parsed = X509CertificationRequest::from_der(&block.contents);
            parsed.err().map(|_| "asn1: structure error: malformed certificate request".to_owned())
        }
        _ => Some("PEM block type must be CERTIFICATE REQUEST".to_owned()),
    }
}

/// Returns true if base64 data contains a PEM block of a type.
fn contains_pem_block(encoded: &str, kind: &str) -> bool {
    let pem = STANDARD.decode(encoded).unwrap_or_default();
    String::from_utf8_lossy(&pem).contains(&format!("-----BEGIN {kind}-----"))
}

fn validate_usages(object: &Value, path: &FieldPath) -> Vec<FieldError> {
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

/// Validates a signer name: `domain/path`.
pub(crate) fn validate_signer_name(signer: &str, path: &FieldPath) -> Vec<FieldError> {
    if signer.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    match signer.split('/').collect::<Vec<_>>().as_slice() {
        [domain, rest] if !rest.is_empty() => {
            let labels = domain.split('.').count();
            let mut errors =
                validation::invalid_for_each(path, signer, orlop_api::names::dns1123_subdomain(domain));
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

    use super::*;
    use crate::strategy::tests::context;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn row_shows_condition_and_issuance() {
        let request = json!({"metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"signerName": "a.b/c", "username": "u", "expirationSeconds": 3600},
            "status": {"conditions": [{"type": "Approved"}], "certificate": "x"}});
        let expected = json!(["r", "60m", "a.b/c", "u", "60m", "Approved,Issued"]);
        assert_eq!(row(&COLUMNS, &request), expected.as_array().unwrap()[..]);
        assert_eq!(row(&COLUMNS, &json!({}))[5], "Pending");
        assert_eq!(
            condition_text(&json!({"status": {"conditions": [{"type": "Denied"}, {"type": "Failed"}]}})),
            "Denied,Failed"
        );
    }

    #[test]
    fn issued_certificate_must_be_pem() {
        let issued = |certificate: &str| json!({"status": {"certificate": STANDARD.encode(certificate)}});
        let check = |object: &Value| {
            messages(CertificateSigningRequest.validate_subresource_update("status", object, object))
        };
        assert!(check(&issued("-----BEGIN CERTIFICATE-----\n")).is_empty() && check(&json!({})).is_empty());
        let validation_errors = "status.certificate: Invalid value: \"<certificate data>\": must contain at least one \
            CERTIFICATE PEM block";
        assert_eq!(check(&issued("-----BEGIN CERTIFICATE REQUEST-----\n")), [validation_errors]);
    }

    #[test]
    fn request_requires_pem_usages_and_signer() {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "a");
        let request = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let pem = STANDARD.encode(request.pem().unwrap());
        let good = json!({"spec": {"request": pem, "usages": ["client auth"], "signerName": "a.b/c"}});
        assert!(messages(CertificateSigningRequest.validate(&good)).is_empty());
        assert_eq!(
            messages(
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
        CertificateSigningRequest.prepare_for_create(&mut made, &context());
        assert_eq!(made["spec"], json!({"username": "jane", "groups": ["system:authenticated"]}));
    }
}
