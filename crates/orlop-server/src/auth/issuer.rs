//! Tokens of service accounts: signed by the cluster, checked by the cluster.

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

/// Who signs, as every token names it.
const NAME: &str = "https://kubernetes.default.svc";

/// Signs and checks tokens (ES256).
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
    /// An issuer with a key of its own, for as long as it lives.
    pub fn make() -> Result<Self, String> {
        let key = rcgen::KeyPair::generate().map_err(|error| error.to_string())?;
        Self::from_pem(&key.serialize_pem())
    }

    /// An issuer with a P-256 key, in PKCS#8 or SEC 1.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| error.to_string())?;
        let key = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_der())
            .map_err(|error| format!("the key of service accounts cannot be used: {error}"))?;
        let key_id = URL_SAFE_NO_PAD.encode(Sha256::digest(key.public_key().as_ref()));
        Ok(Self { key, key_id })
    }

    /// The name that tokens carry.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// What others need to know to check tokens: where the keys are.
    pub(crate) fn discovery(&self) -> Value {
        json!({
            "issuer": NAME, "jwks_uri": format!("{NAME}/openid/v1/jwks"),
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// The keys, as a JSON Web Key Set.
    pub(crate) fn keys(&self) -> Value {
        // A point of the curve, uncompressed: a mark, then two coordinates.
        let point = self.key.public_key().as_ref();
        let coordinate = |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + 32).unwrap_or_default());
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": coordinate(1), "y": coordinate(33),
        }]})
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, String> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature =
            self.key.sign(&SystemRandom::new(), signed.as_bytes()).map_err(|error| error.to_string())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token that this issuer signed and that has not run out.
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
    fn a_token_is_good_for_its_issuer_and_its_time_only() {
        let (issuer, other) = (Issuer::make().unwrap(), Issuer::make().unwrap());
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
