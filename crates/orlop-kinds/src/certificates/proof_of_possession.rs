//! Proofs that whoever asks for a certificate holds the private key: a certificate of another's key would let its holder pass
//! for that other.

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::{
    certification_request::X509CertificationRequest, public_key::PublicKey, x509::SubjectPublicKeyInfo,
};

/// Object identifier of Ed25519, of keys and of signatures.
pub(super) const ED25519: &str = "1.3.101.112";
pub(super) const P256: &str = "1.2.840.10045.3.1.7";
pub(super) const P384: &str = "1.3.132.0.34";
pub(super) const P521: &str = "1.3.132.0.35";

/// Sort of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyType {
    Ed25519,
    P256,
    P384,
    P521,
    Rsa,
}

impl KeyType {
    fn of(key: &SubjectPublicKeyInfo<'_>) -> Option<Self> {
        if key.algorithm.algorithm.to_id_string() == ED25519 {
            return Some(Self::Ed25519);
        }
        match key.parsed() {
            Ok(PublicKey::EC(_)) => match curve(key).as_str() {
                P256 => Some(Self::P256),
                P384 => Some(Self::P384),
                P521 => Some(Self::P521),
                _ => None,
            },
            Ok(PublicKey::RSA(_)) => Some(Self::Rsa),
            _ => None,
        }
    }
}

/// Returns the object identifier of the curve of an elliptic key; empty if it has none.
pub(super) fn curve(key: &SubjectPublicKeyInfo<'_>) -> String {
    let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
    curve.map(|curve| curve.to_id_string()).unwrap_or_default()
}

/// Returns true if a request is signed with the key that it is for.
pub(super) fn is_signed(request: &X509CertificationRequest<'_>) -> bool {
    let info = &request.certification_request_info;
    let named = request.signature_algorithm.algorithm.to_id_string();
    let algorithm =
        KeyType::of(&info.subject_pki).and_then(|key_type| algorithm_of_request(key_type, &named));
    algorithm.is_some_and(|algorithm| {
        verify(algorithm, &info.subject_pki, info.raw, &request.signature_value.data)
    })
}

/// Returns true if a proof is the signature of a pod's uid with a key.
pub(super) fn is_proved(key: &SubjectPublicKeyInfo<'_>, pod_uid: &str, proof: &[u8]) -> bool {
    let algorithm: &'static dyn VerificationAlgorithm = match KeyType::of(key) {
        Some(KeyType::Ed25519) => &signature::ED25519,
        Some(KeyType::P256) => &signature::ECDSA_P256_SHA256_ASN1,
        Some(KeyType::P384) => &signature::ECDSA_P384_SHA256_ASN1,
        Some(KeyType::P521) => &signature::ECDSA_P521_SHA256_ASN1,
        Some(KeyType::Rsa) => &signature::RSA_PSS_2048_8192_SHA256,
        None => return false,
    };
    verify(algorithm, key, pod_uid.as_bytes(), proof)
}

fn verify(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &SubjectPublicKeyInfo<'_>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    UnparsedPublicKey::new(algorithm, &key.subject_public_key.data).verify(message, signature).is_ok()
}

/// Returns the algorithm of a request's signature by its object identifier, if it is one of the key's.
fn algorithm_of_request(key_type: KeyType, named: &str) -> Option<&'static dyn VerificationAlgorithm> {
    const ECDSA_SHA256: &str = "1.2.840.10045.4.3.2";
    const ECDSA_SHA384: &str = "1.2.840.10045.4.3.3";
    const ECDSA_SHA512: &str = "1.2.840.10045.4.3.4";
    const RSA_SHA256: &str = "1.2.840.113549.1.1.11";
    const RSA_SHA384: &str = "1.2.840.113549.1.1.12";
    const RSA_SHA512: &str = "1.2.840.113549.1.1.13";
    Some(match (key_type, named) {
        (KeyType::Ed25519, ED25519) => &signature::ED25519,
        (KeyType::P256, ECDSA_SHA256) => &signature::ECDSA_P256_SHA256_ASN1,
        (KeyType::P256, ECDSA_SHA384) => &signature::ECDSA_P256_SHA384_ASN1,
        (KeyType::P256, ECDSA_SHA512) => &signature::ECDSA_P256_SHA512_ASN1,
        (KeyType::P384, ECDSA_SHA256) => &signature::ECDSA_P384_SHA256_ASN1,
        (KeyType::P384, ECDSA_SHA384) => &signature::ECDSA_P384_SHA384_ASN1,
        (KeyType::P384, ECDSA_SHA512) => &signature::ECDSA_P384_SHA512_ASN1,
        (KeyType::P521, ECDSA_SHA256) => &signature::ECDSA_P521_SHA256_ASN1,
        (KeyType::P521, ECDSA_SHA384) => &signature::ECDSA_P521_SHA384_ASN1,
        (KeyType::P521, ECDSA_SHA512) => &signature::ECDSA_P521_SHA512_ASN1,
        (KeyType::Rsa, RSA_SHA256) => &signature::RSA_PKCS1_2048_8192_SHA256,
        (KeyType::Rsa, RSA_SHA384) => &signature::RSA_PKCS1_2048_8192_SHA384,
        (KeyType::Rsa, RSA_SHA512) => &signature::RSA_PKCS1_2048_8192_SHA512,
        _ => return None,
    })
}
