//! Private keys that sign tokens.

use aws_lc_rs::{
    rand::SystemRandom,
    rsa,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
        EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256,
    },
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use x509_parser::pem::Pem;

use super::{
    Algorithm, KeyError, PublicKey,
    public_key::{self, KeyType},
};

/// An RSA or ECDSA private key.
pub struct SigningKey {
    pair: Pair,
    public: PublicKey,
}

enum Pair {
    Rsa(Box<rsa::KeyPair>),
    Ec(EcdsaKeyPair),
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key stays out of logs.
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Returns the first private key in PEM: PKCS#8, PKCS#1 (RSA) or SEC 1 (EC).
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        for section in Pem::iter_from_buffer(pem) {
            let section = section.map_err(|error| KeyError(format!("malformed PEM: {error}")))?;
            if matches!(section.label.as_str(), "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY") {
                return Self::from_der(&section.contents);
            }
        }
        Err(KeyError("data does not contain a valid RSA or ECDSA private key".to_owned()))
    }

    /// Returns the key of a DER encoding: PKCS#8, PKCS#1 or SEC 1.
    pub fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        let curves = [
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &ECDSA_P384_SHA384_FIXED_SIGNING,
            &ECDSA_P521_SHA512_FIXED_SIGNING,
        ];
        for curve in curves {
            if let Ok(pair) = EcdsaKeyPair::from_private_key_der(curve, der) {
                let public = PublicKey::from_spki(public_key::spki(pair.public_key())?.as_ref())?;
                return Ok(Self { pair: Pair::Ec(pair), public });
            }
        }
        let pair = rsa::KeyPair::from_pkcs8(der)
            .or_else(|_| rsa::KeyPair::from_der(der))
            .map_err(|error| KeyError(format!("not a usable RSA or ECDSA private key: {error}")))?;
        let public = PublicKey::from_spki(public_key::spki(pair.public_key())?.as_ref())?;
        Ok(Self { pair: Pair::Rsa(Box::new(pair)), public })
    }

    /// Returns the public key.
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// Returns a token with claims, signed with the key's default algorithm.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let algorithm = self.public.default_algorithm();
        let header = json!({"alg": algorithm.name(), "kid": self.public.key_id()});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = self.signature(signed.as_bytes())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn signature(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let failed = |_| KeyError("cannot sign".to_owned());
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            Pair::Ec(pair) => Ok(pair.sign(&random, message).map_err(failed)?.as_ref().to_vec()),
        }
    }

    /// Returns the algorithm of signatures.
    pub fn algorithm(&self) -> Algorithm {
        debug_assert!(matches!(self.pair, Pair::Rsa(_)) == (self.public.key_type() == KeyType::Rsa));
        self.public.default_algorithm()
    }
}
