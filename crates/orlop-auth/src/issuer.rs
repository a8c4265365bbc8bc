//! Issuer of service account tokens: JSON Web Tokens signed with ES256.

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
    },
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The issuer's name, the `iss` of all tokens.
const NAME: &str = "https://kubernetes.default.svc";

/// A signing key cannot be generated or used.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// No key could be generated.
    #[error("cannot generate a service account key")]
    Generate(#[from] rcgen::Error),
    /// The key is not PEM.
    #[error("the service account key is not PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The key is not a P-256 key.
    #[error("the service account key cannot be used: {0}")]
    Rejected(#[from] aws_lc_rs::error::KeyRejected),
    /// The signature could not be computed.
    #[error("cannot sign a service account token")]
    Sign(#[from] aws_lc_rs::error::Unspecified),
}

/// Signs and verifies tokens.
pub struct Issuer {
    key: EcdsaKeyPair,
    key_id: String,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key stays out of logs.
        f.debug_struct("Issuer").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl Issuer {
    /// Returns an issuer with a generated key.
    pub fn generate() -> Result<Self, IssuerError> {
        let key = rcgen::KeyPair::generate()?;
        Self::from_pem(&key.serialize_pem())
    }

    /// Returns an issuer with a P-256 key, in PKCS#8 or SEC 1.
    pub fn from_pem(pem: &str) -> Result<Self, IssuerError> {
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes())?;
        let key = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_der())?;
        let key_id = URL_SAFE_NO_PAD.encode(Sha256::digest(key.public_key().as_ref()));
        Ok(Self { key, key_id })
    }

    /// Returns the issuer's name.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// Returns the OpenID discovery document.
    pub fn discovery(&self) -> Value {
        json!({
            "issuer": NAME, "jwks_uri": format!("{NAME}/openid/v1/jwks"),
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// Returns the public keys as a JSON Web Key Set.
    pub fn keys(&self) -> Value {
        // An uncompressed point: a tag byte, then two coordinates.
        let point = self.key.public_key().as_ref();
        let coordinate = |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + 32).unwrap_or_default());
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": coordinate(1), "y": coordinate(33),
        }]})
    }

    /// Signs claims.
    pub fn sign(&self, claims: &Value) -> Result<String, IssuerError> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Returns the claims of a token of this issuer that has not expired.
    pub fn check(&self, token: &str, now_seconds: i64) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref());
        key.verify(signed.as_bytes(), &signature).ok()?;
        let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.')?.1).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        let seconds = |name: &str| claims.get(name).and_then(Value::as_i64);
        (seconds("exp")? > now_seconds && seconds("nbf")? <= now_seconds).then_some(claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_verifies_only_with_its_issuer_and_before_it_expires() {
        let (issuer, other) = (Issuer::generate().unwrap(), Issuer::generate().unwrap());
        let claims = json!({"sub": "x", "nbf": 100, "exp": 200});
        let token = issuer.sign(&claims).unwrap();
        assert_eq!(issuer.check(&token, 150), Some(claims));
        assert_eq!(issuer.check(&token, 99), None);
        assert_eq!(issuer.check(&token, 200), None);
        assert_eq!(other.check(&token, 150), None);
        let mut forged: Vec<String> = token.split('.').map(str::to_owned).collect();
        forged[1] = URL_SAFE_NO_PAD.encode("{\"sub\":\"admin\",\"nbf\":100,\"exp\":200}");
        assert_eq!(issuer.check(&forged.join("."), 150), None);
        assert_eq!(issuer.check("not a token", 150), None);
    }
}
