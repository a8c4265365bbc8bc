//! Public keys from PEM, also of private keys and certificates.

use aws_lc_rs::rsa;
use x509_parser::pem::Pem;

use super::{KeyError, PublicKey, SigningKey, public_key::spki};

impl PublicKey {
    /// Returns all keys in PEM: public keys, private ones, of which the public part is taken, and certificates.
    /// Other sections are skipped.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, KeyError> {
        let mut keys = Vec::new();
        for section in Pem::iter_from_buffer(pem) {
            let section = section.map_err(|error| KeyError(format!("malformed PEM: {error}")))?;
            match section.label.as_str() {
                "PUBLIC KEY" => keys.push(Self::from_spki(&section.contents)?),
                "RSA PUBLIC KEY" => {
                    let key = rsa::PublicKey::from_der(&section.contents)
                        .map_err(|error| KeyError(format!("unusable RSA public key: {error}")))?;
                    keys.push(Self::from_spki(spki(&key)?.as_ref())?);
                }
                "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => {
                    keys.push(SigningKey::from_der(&section.contents)?.public_key().clone());
                }
                "CERTIFICATE" => {
                    let (_, certificate) = x509_parser::parse_x509_certificate(&section.contents)
                        .map_err(|error| KeyError(format!("malformed certificate: {error}")))?;
                    keys.push(Self::from_spki(certificate.public_key().raw)?);
                }
                _ => {}
            }
        }
        if keys.is_empty() {
            return Err(KeyError("data does not contain any valid RSA or ECDSA public keys".to_owned()));
        }
        Ok(keys)
    }
}
