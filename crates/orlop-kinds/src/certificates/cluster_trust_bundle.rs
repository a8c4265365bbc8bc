//! ClusterTrustBundle: trust anchors of a signer.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::{
    field_error::{FieldError, FieldPath},
    names::{self, NameRule},
};
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate_signing_request::validate_signer_name;
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{text, text_or},
    printer::{ColumnDefinition, PrinterColumns, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    // The name starts with the signer's, which has colons for slashes.
    name_rule: NameRule::PathSegment,
    flags: StrategyFlags { allow_unconditional_update: false, ..StrategyFlags::BUILTIN },
    selectable_fields: &["spec.signerName"],
    columns: &COLUMNS,
    strategy: &ClusterTrustBundle,
    ..BuiltinKind::new("certificates.k8s.io", "clustertrustbundles")
};

/// Size limit of the PEM bundle, in bytes.
const BUNDLE_BYTES_MAX: usize = 1 << 20;

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("SignerName")],
    cells: |object, _| vec![name(object), text_or(object, "/spec/signerName", "<none>").into()],
};

pub(crate) struct ClusterTrustBundle;

impl Strategy for ClusterTrustBundle {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_names(object);
        let path = FieldPath::root("spec").child("trustBundle");
        errors.extend(validate_trust_bundle(text(object, "/spec/trustBundle"), &path));
        errors
    }

    /// An unchanged bundle is not parsed again, so that stricter parsers reject no stored object.
    fn validate_replacement(&self, object: &Value, old: &Value, _subresource: &str) -> Vec<FieldError> {
        let is_unchanged = text(object, "/spec/trustBundle") == text(old, "/spec/trustBundle");
        let mut errors = if is_unchanged { validate_names(object) } else { self.validate(object) };
        let spec = |object: &Value| object.get("spec").cloned().unwrap_or_default();
        let path = FieldPath::root("spec");
        errors.extend(validation::validate_immutable(&spec(object), &spec(old), "signerName", &path));
        errors
    }
}

/// Validates the object's name, whose prefix is the signer's, and the signer's name.
fn validate_names(object: &Value) -> Vec<FieldError> {
    let signer = text(object, "/spec/signerName");
    let mut errors = Vec::new();
    for field in ["generateName", "name"] {
        let name = text(object, &format!("/metadata/{field}"));
        if !name.is_empty() {
            let path = FieldPath::root("metadata").child(field);
            errors.extend(validation::invalid_for_each(
                &path,
                name,
                name_problems(name, signer, field == "generateName"),
            ));
        }
    }
    if !signer.is_empty() {
        errors.extend(validate_signer_name(signer, &FieldPath::root("spec").child("signerName")));
    }
    errors
}

/// Validates the name of a ClusterTrustBundle that another object refers to. The name tells its signer.
pub(crate) fn validate_bundle_name(name: &str, path: &FieldPath) -> Vec<FieldError> {
    let signer = name.rsplit_once(':').map_or(String::new(), |(signer, _)| signer.replace(':', "/"));
    let problems = name_problems(name, &signer, false);
    let detail = |problem: &String| format!("not a valid clustertrustbundlename: {problem}");
    validation::invalid_for_each(path, name, problems.iter().map(detail).collect())
}

fn name_problems(name: &str, signer: &str, is_prefix: bool) -> Vec<String> {
    let subdomain = |name: &str| {
        // A generated suffix completes a prefix that ends with a hyphen.
        let name = if is_prefix {
            name.strip_suffix('-').map_or(name.to_owned(), |base| base.to_owned() + "a")
        } else {
            name.to_owned()
        };
        names::dns1123_subdomain(&name)
    };
    if signer.is_empty() {
        if name.contains(':') {
            return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()];
        }
        return subdomain(name);
    }
    let prefix = signer.replace('/', ":") + ":";
    match name.strip_prefix(&prefix) {
        Some(rest) => subdomain(rest),
        None => {
            vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")]
        }
    }
}

/// Validates that a bundle consists of distinct PEM-encoded CA certificates.
fn validate_trust_bundle(bundle: &str, path: &FieldPath) -> Vec<FieldError> {
    if bundle.len() > BUNDLE_BYTES_MAX {
        return vec![FieldError::too_long(path, BUNDLE_BYTES_MAX)];
    }
    let invalid = |detail: String| FieldError::invalid(path, "<value omitted>", detail);
    let mut errors = Vec::new();
    let mut anchors: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (index, block) in pem_blocks(bundle).into_iter().enumerate() {
        match block.problem() {
            Some(problem) => errors.push(invalid(format!("entry {index} {problem}"))),
            None => anchors.entry(block.bytes).or_default().push(index),
        }
    }
    // Malformed entries would also count as missing or duplicate.
    if !errors.is_empty() {
        return errors;
    }
    if anchors.is_empty() {
        return vec![invalid("at least one trust anchor must be provided".to_owned())];
    }
    let mut repeated: Vec<_> = anchors.into_values().filter(|indices| indices.len() > 1).collect();
    repeated.sort_unstable();
    let list = |indices: Vec<usize>| indices.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    repeated
        .into_iter()
        .map(|indices| invalid(format!("duplicate trust anchor (indices [{}])", list(indices))))
        .collect()
}

/// A PEM block, with headers if there are any.
struct PemBlock<'a> {
    label: &'a str,
    has_headers: bool,
    bytes: Vec<u8>,
}

impl PemBlock<'_> {
    /// Returns the reason why the block is no trust anchor.
    fn problem(&self) -> Option<String> {
        if self.label != "CERTIFICATE" {
            return Some(format!("has bad block type: {}", self.label));
        }
        if self.has_headers {
            return Some("has PEM block headers".to_owned());
        }
        let problem = match X509Certificate::from_der(&self.bytes) {
            Ok(([], certificate)) if certificate.is_ca() => return None,
            Ok(([], _)) => "does not have the CA bit set",
            _ => "does not parse as X.509",
        };
        Some(problem.to_owned())
    }
}

/// Returns the PEM blocks of a text. Text between blocks and undecodable blocks are skipped, as in Go.
fn pem_blocks(text: &str) -> Vec<PemBlock<'_>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let label = line.trim_end().strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----"));
        let Some(label) = label else { continue };
        let end = format!("-----END {label}-----");
        let body: Vec<&str> = lines.by_ref().map(str::trim_end).take_while(|line| *line != end).collect();
        let (headers, data): (Vec<&str>, Vec<&str>) = body.into_iter().partition(|line| line.contains(':'));
        if let Ok(bytes) = STANDARD.decode(data.concat()) {
            blocks.push(PemBlock { label, has_headers: !headers.is_empty(), bytes });
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    fn certificate(is_ca: bool) -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn bundle(name: &str, signer: &str, pem: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": pem}})
    }

    #[test]
    fn name_must_start_with_the_signer() {
        let anchor = certificate(true);
        let errors =
            |name: &str, signer: &str| messages(ClusterTrustBundle.validate(&bundle(name, signer, &anchor)));
        assert!(errors("plain", "").is_empty());
        assert!(errors("example.com:ca:v1", "example.com/ca").is_empty());
        assert_eq!(
            errors("a:b", ""),
            [
                r#"metadata.name: Invalid value: "a:b": ClusterTrustBundle without signer name must not have ":" in its name"#
            ]
        );
        assert_eq!(
            errors("v1", "example.com/ca"),
            [
                r#"metadata.name: Invalid value: "v1": ClusterTrustBundle for signerName example.com/ca must be named with prefix example.com:ca:"#
            ]
        );
    }

    #[test]
    fn bundle_consists_of_distinct_ca_certificates() {
        let (anchor, leaf) = (certificate(true), certificate(false));
        let errors = |pem: &str| messages(ClusterTrustBundle.validate(&bundle("b", "", pem)));
        let invalid =
            |detail: &str| format!(r#"spec.trustBundle: Invalid value: "<value omitted>": {detail}"#);
        assert_eq!(errors(""), [invalid("at least one trust anchor must be provided")]);
        assert_eq!(errors(&leaf), [invalid("entry 0 does not have the CA bit set")]);
        assert_eq!(
            errors(&format!("{anchor}-----BEGIN KEY-----\nAAAA\n-----END KEY-----\n")),
            [invalid("entry 1 has bad block type: KEY")]
        );
        assert_eq!(
            errors("-----BEGIN CERTIFICATE-----\nA: b\n\nAAAA\n-----END CERTIFICATE-----\n"),
            [invalid("entry 0 has PEM block headers")]
        );
        assert_eq!(
            errors("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            [invalid("entry 0 does not parse as X.509")]
        );
        assert_eq!(errors(&anchor.repeat(2)), [invalid("duplicate trust anchor (indices [0 1])")]);
        let large = "x".repeat(BUNDLE_BYTES_MAX + 1);
        assert_eq!(errors(&large).len(), 1);
    }

    #[test]
    fn update_ignores_an_unchanged_bundle_and_keeps_the_signer() {
        let old = bundle("example.com:ca:v1", "example.com/ca", "stored before it was validated");
        assert!(ClusterTrustBundle.validate_replacement(&old, &old, "").is_empty());
        let mut changed = old.clone();
        changed["spec"]["signerName"] = "example.com/other".into();
        assert_eq!(
            messages(ClusterTrustBundle.validate_replacement(&changed, &old, "")),
            [
                r#"metadata.name: Invalid value: "example.com:ca:v1": ClusterTrustBundle for signerName example.com/other must be named with prefix example.com:other:"#,
                r#"spec.signerName: Invalid value: "example.com/other": field is immutable"#,
            ]
        );
    }
}
