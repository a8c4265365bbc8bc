//! Public keys, from PEM and from JSON Web Keys.

use std::fmt;

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    signature::{RsaPublicKeyComponents, UnparsedPublicKey},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use x509_parser::{prelude::FromDer, public_key, x509::SubjectPublicKeyInfo};

use super::Algorithm;
use crate::encoding::der;

/// A key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(pub String);

/// Type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyType {
    Rsa,
    P256,
    P384,
    P521,
}

impl KeyType {
    /// Returns the curve's name in a JSON Web Key, and the bytes of a coordinate.
    fn curve(self) -> Option<(&'static str, usize)> {
        match self {
            Self::Rsa => None,
            Self::P256 => Some(("P-256", 32)),
            Self::P384 => Some(("P-384", 48)),
            Self::P521 => Some(("P-521", 66)),
        }
    }

    fn allows(self, algorithm: Algorithm) -> bool {
        match algorithm {
            Algorithm::Es256 => self == Self::P256,
            Algorithm::Es384 => self == Self::P384,
            Algorithm::Es512 => self == Self::P521,
            _ => self == Self::Rsa,
        }
    }
}

/// An RSA or ECDSA public key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    key_type: KeyType,
    /// SubjectPublicKeyInfo, DER.
    spki: Vec<u8>,
    key_id: String,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl PublicKey {
    /// Returns a key from its SubjectPublicKeyInfo. Its id is derived from it, as in Kubernetes.
    pub fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        let unusable = || KeyError("not an RSA or ECDSA public key".to_owned());
        let (_, parsed) = SubjectPublicKeyInfo::from_der(spki).map_err(|_| unusable())?;
        let key_type = match parsed.parsed().map_err(|_| unusable())? {
            public_key::PublicKey::RSA(_) => KeyType::Rsa,
            public_key::PublicKey::EC(point) => match point.key_size() {
                256 => KeyType::P256,
                384 => KeyType::P384,
                521 | 528 => KeyType::P521,
                _ => return Err(KeyError("unknown curve: must be P-256, P-384 or P-521".to_owned())),
            },
            _ => return Err(unusable()),
        };
        let key_id = URL_SAFE_NO_PAD.encode(Sha256::digest(spki));
        Ok(Self { key_type, spki: spki.to_owned(), key_id })
    }

    /// Returns the key of a JSON Web Key; `None` if its type is not supported or it is not for signatures.
    pub fn from_jwk(jwk: &Value) -> Result<Option<Self>, KeyError> {
        let text = |field: &str| jwk.get(field).and_then(Value::as_str).unwrap_or_default();
        let bytes = |field: &str| {
            URL_SAFE_NO_PAD
                .decode(text(field).trim_end_matches('='))
                .ok()
                .filter(|bytes| !bytes.is_empty())
                .ok_or_else(|| KeyError(format!("JSON Web Key: invalid field {field:?}")))
        };
        if !matches!(text("use"), "" | "sig") {
            return Ok(None);
        }
        let mut key = match (text("kty"), text("crv")) {
            ("RSA", _) => {
                let (n, e) = (bytes("n")?, bytes("e")?);
                let strip = |bytes: &[u8]| bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
                let components = RsaPublicKeyComponents::<Vec<u8>> { n: strip(&n), e: strip(&e) };
                let spki: PublicKeyX509Der<'_> =
                    components.as_der().map_err(|_| KeyError("JSON Web Key: unusable RSA key".to_owned()))?;
                Self::from_spki(spki.as_ref())?
            }
            ("EC", curve) => {
                let types = [KeyType::P256, KeyType::P384, KeyType::P521];
                let of_curve = |key_type: &&KeyType| key_type.curve().is_some_and(|(name, _)| name == curve);
                let Some(key_type) = types.iter().find(of_curve) else { return Ok(None) };
                Self::from_coordinates(*key_type, &bytes("x")?, &bytes("y")?)?
            }
            _ => return Ok(None),
        };
        text("kid").clone_into(&mut key.key_id);
        Ok(Some(key))
    }

    fn from_coordinates(key_type: KeyType, x: &[u8], y: &[u8]) -> Result<Self, KeyError> {
        let unusable = || KeyError("JSON Web Key: not a point of its curve".to_owned());
        let (_, width) = key_type.curve().ok_or_else(unusable)?;
        if x.len() > width || y.len() > width {
            return Err(unusable());
        }
        let mut point = vec![4];
        for coordinate in [x, y] {
            point.resize(point.len() + width - coordinate.len(), 0);
            point.extend_from_slice(coordinate);
        }
        let spki = ec_spki(key_type, &point).ok_or_else(unusable)?;
        // A point that is not on the curve does not verify anything; find out now.
        let algorithm = match key_type {
            KeyType::P384 => Algorithm::Es384,
            KeyType::P521 => Algorithm::Es512,
            _ => Algorithm::Es256,
        };
        aws_lc_rs::signature::ParsedPublicKey::new(algorithm.verification(), &spki)
            .map_err(|_| unusable())?;
        Self::from_spki(&spki)
    }

    /// Returns the key's id.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    pub(super) fn key_type(&self) -> KeyType {
        self.key_type
    }

    /// Returns the algorithm that Kubernetes signs with a key of this type.
    pub fn default_algorithm(&self) -> Algorithm {
        match self.key_type {
            KeyType::Rsa => Algorithm::Rs256,
            KeyType::P256 => Algorithm::Es256,
            KeyType::P384 => Algorithm::Es384,
            KeyType::P521 => Algorithm::Es512,
        }
    }

    /// Returns true if the signature of a message is by this key. An algorithm for another type of key never is.
    pub fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(algorithm.verification(), &self.spki);
        self.key_type.allows(algorithm) && key.verify(message, signature).is_ok()
    }

    /// Returns the key as a JSON Web Key.
    pub fn to_jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = json!({"use": "sig", "kid": self.key_id, "alg": self.default_algorithm().name()});
        let parsed = SubjectPublicKeyInfo::from_der(&self.spki).ok();
        match parsed.as_ref().and_then(|(_, parsed)| parsed.parsed().ok()) {
            Some(public_key::PublicKey::RSA(key)) => {
                let strip = |bytes: &[u8]| -> Vec<u8> {
                    bytes.iter().copied().skip_while(|byte| *byte == 0).collect()
                };
                jwk["kty"] = "RSA".into();
                jwk["n"] = encode(&strip(key.modulus)).into();
                jwk["e"] = encode(&strip(key.exponent)).into();
            }
            Some(public_key::PublicKey::EC(point)) => {
                let (curve, width) = self.key_type.curve().unwrap_or_default();
                let coordinate =
                    |from: usize| encode(point.data().get(from..from + width).unwrap_or_default());
                jwk["kty"] = "EC".into();
                jwk["crv"] = curve.into();
                jwk["x"] = coordinate(1).into();
                jwk["y"] = coordinate(1 + width).into();
            }
            _ => {}
        }
        jwk
    }
}

pub(super) fn spki<'a, K: AsDer<PublicKeyX509Der<'a>>>(key: &K) -> Result<PublicKeyX509Der<'a>, KeyError> {
    key.as_der().map_err(|_| KeyError("unusable public key".to_owned()))
}

/// Returns the SubjectPublicKeyInfo of an uncompressed point.
fn ec_spki(key_type: KeyType, point: &[u8]) -> Option<Vec<u8>> {
    /// DER of id-ecPublicKey.
    const EC_PUBLIC_KEY: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    let curve: &[u8] = match key_type {
        KeyType::Rsa => return None,
        KeyType::P256 => &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
        KeyType::P384 => &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22],
        KeyType::P521 => &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23],
    };
    let algorithm = der(0x30, &[EC_PUBLIC_KEY, curve].concat());
    let bits = der(0x03, &[&[0], point].concat());
    Some(der(0x30, &[algorithm, bits].concat()))
}
