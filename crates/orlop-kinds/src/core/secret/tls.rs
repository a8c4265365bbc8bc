//! Matches a certificate with its private key, with the error texts of Go's `crypto/tls`.
//!
//! Reports certain mismatches only: a key of an unknown algorithm may be valid.

use orlop_api::go_text;
use rcgen::{KeyPair, PublicKeyData};
use x509_parser::{
    pem::Pem,
    prelude::{FromDer, X509Certificate},
    x509::SubjectPublicKeyInfo,
};

/// Returns the problem of a PEM certificate and its PEM key.
pub(crate) fn key_pair_problem(certificates: &[u8], keys: &[u8]) -> Option<String> {
    let blocks = pem_blocks(certificates);
    let Some(certificate) = blocks.iter().find(|block| block.label == "CERTIFICATE") else {
        return Some(missing_certificate_message(&labels(&blocks)));
    };
    let blocks = self::pem_blocks(keys);
    let is_key = |label: &str| label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY");
    let Some(key) = blocks.iter().find(|block| is_key(&block.label)) else {
        return Some(missing_key_message(&labels(&blocks)));
    };
    let Ok((_, certificate)) = X509Certificate::from_der(&certificate.contents) else {
        return Some("x509: malformed certificate".to_owned());
    };
    // Every key is an ASN.1 SEQUENCE.
    const SEQUENCE: u8 = 0x30;
    if key.contents.first() != Some(&SEQUENCE) {
        return Some("tls: failed to parse private key".to_owned());
    }
    let pair = KeyPair::try_from(key.contents.as_slice()).ok()?.subject_public_key_info();
    let (_, of_key) = SubjectPublicKeyInfo::from_der(&pair).ok()?;
    let of_certificate = certificate.public_key();
    if of_key.algorithm.algorithm != of_certificate.algorithm.algorithm {
        return Some("tls: private key type does not match public key type".to_owned());
    }
    (of_key.subject_public_key.data != of_certificate.subject_public_key.data)
        .then(|| "tls: private key does not match public key".to_owned())
}

/// Returns the PEM blocks up to the first that does not parse.
fn pem_blocks(text: &[u8]) -> Vec<Pem> {
    Pem::iter_from_buffer(text).map_while(Result::ok).collect()
}

fn labels(blocks: &[Pem]) -> Vec<&str> {
    blocks.iter().map(|block| block.label.as_str()).collect()
}

fn missing_certificate_message(skipped: &[&str]) -> String {
    match skipped {
        [] => "tls: failed to find any PEM data in certificate input".to_owned(),
        [one] if one.ends_with("PRIVATE KEY") => {
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs \
             may have been switched"
                .to_owned()
        }
        _ => format!(
            "tls: failed to find {} PEM block in certificate input after skipping PEM blocks of the following \
             types: [{}]",
            go_text::quote("CERTIFICATE"),
            skipped.join(" ")
        ),
    }
}

fn missing_key_message(skipped: &[&str]) -> String {
    match skipped {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        ["CERTIFICATE"] => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        _ => format!(
            "tls: failed to find PEM block with type ending in {} in key input after skipping PEM blocks of the \
             following types: [{}]",
            go_text::quote("PRIVATE KEY"),
            skipped.join(" ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};

    use super::*;

    fn pair(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate =
            CertificateParams::new(vec!["a.example".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn certificate_must_match_its_key() {
        let (certificate, key) = pair(&PKCS_ECDSA_P256_SHA256);
        let (_, other) = pair(&PKCS_ECDSA_P256_SHA256);
        let (other_certificate, of_another_type) = pair(&PKCS_ED25519);
        let of = |certificate: &str, key: &str| key_pair_problem(certificate.as_bytes(), key.as_bytes());
        assert_eq!(of(&certificate, &key), None);
        assert_eq!(of(&other_certificate, &of_another_type), None);
        assert_eq!(of(&format!("{certificate}{other_certificate}"), &key), None, "a chain");
        let block = |label: &str| format!("-----BEGIN {label}-----\nYWJj\n-----END {label}-----\n");
        for (certificate, key, expected) in [
            (certificate.as_str(), other.as_str(), "tls: private key does not match public key"),
            (&certificate, &of_another_type, "tls: private key type does not match public key type"),
            (
                &key,
                &certificate,
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM \
                 inputs may have been switched",
            ),
            ("", &key, "tls: failed to find any PEM data in certificate input"),
            (&certificate, "zork", "tls: failed to find any PEM data in key input"),
            (
                &certificate,
                &certificate,
                "tls: found a certificate rather than a key in the PEM for the private key",
            ),
            (&block("CERTIFICATE"), &key, "x509: malformed certificate"),
            (&certificate, &block("PRIVATE KEY"), "tls: failed to parse private key"),
            (
                &certificate,
                &block("FOO"),
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM \
                 blocks of the following types: [FOO]",
            ),
        ] {
            assert_eq!(of(certificate, key).as_deref(), Some(expected));
        }
    }
}
