//! Tokens in the compact serialization.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::{Algorithm, PublicKey};

/// Longer tokens are not parsed.
pub const TOKEN_BYTES_MAX: usize = 128 << 10;

/// A parsed token. Nothing in it is to be trusted before it is verified.
#[derive(Clone, Debug)]
pub struct Token<'a> {
    /// `alg` of its header; `None` if it is not a supported one.
    algorithm: Option<Algorithm>,
    algorithm_name: String,
    key_id: Option<String>,
    /// True if the header has critical extensions, none of which is understood.
    has_critical_extensions: bool,
    claims: Map<String, Value>,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    /// Parses a token; `None` if it is not a JSON Web Token.
    pub fn parse(token: &'a str) -> Option<Self> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let object = |part: &str| -> Option<Map<String, Value>> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
        };
        let header = object(header)?;
        let algorithm_name = header.get("alg").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self {
            algorithm: Algorithm::parse(&algorithm_name),
            algorithm_name,
            key_id: header.get("kid").and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned),
            has_critical_extensions: header.contains_key("crit"),
            claims: object(payload)?,
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }

    /// Returns the algorithm, if it is a supported one.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm
    }

    /// Returns the `alg` header.
    pub fn algorithm_name(&self) -> &str {
        &self.algorithm_name
    }

    /// Returns the `kid` header.
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// Returns the claims, trusted or not.
    pub fn claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    /// Returns the claims.
    pub fn into_claims(self) -> Map<String, Value> {
        self.claims
    }

    /// Returns the `iss` claim.
    pub fn issuer(&self) -> &str {
        self.claims.get("iss").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the `aud` claim: a text or a list of them.
    pub fn audiences(&self) -> Vec<String> {
        match self.claims.get("aud") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns true if a key has signed this token.
    pub fn verify(&self, key: &PublicKey) -> bool {
        let Some(algorithm) = self.algorithm else { return false };
        !self.has_critical_extensions && key.verify(algorithm, self.signed.as_bytes(), &self.signature)
    }
}

/// Returns a claim that is a time, in seconds since the epoch, rounded down. `None` if it is absent; an error if it is
/// not a number.
pub fn seconds(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, String> {
    match claims.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => {
            let whole = number.as_i64();
            // Beyond the range of an i64 the cast saturates.
            let seconds = whole.or_else(|| number.as_f64().map(|seconds| seconds.floor() as i64));
            seconds.map(Some).ok_or_else(|| format!("claim {name:?} is not a time"))
        }
        Some(_) => Err(format!("claim {name:?} is not a time")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::jose::{KeySet, SigningKey};

    fn key() -> SigningKey {
        SigningKey::from_pem(rcgen::KeyPair::generate().unwrap().serialize_pem().as_bytes()).unwrap()
    }

    fn part(value: &Value) -> String {
        URL_SAFE_NO_PAD.encode(value.to_string())
    }

    #[test]
    fn token_verifies_only_with_its_key_and_content() {
        let (key, other) = (key(), key());
        let text = key.sign(&json!({"iss": "i", "aud": ["a", "b"], "exp": 12.9})).unwrap();
        let token = Token::parse(&text).unwrap();
        assert_eq!((token.issuer(), token.audiences()), ("i", vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(seconds(token.claims(), "exp"), Ok(Some(12)));
        assert_eq!(token.key_id(), Some(key.public_key().key_id()));
        assert!(token.verify(key.public_key()));
        assert!(!token.verify(other.public_key()));
        let mut parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        parts[1] = part(&json!({"iss": "i", "sub": "admin"}));
        assert!(!Token::parse(&parts.join(".")).unwrap().verify(key.public_key()));
    }

    #[test]
    fn unsigned_symmetric_and_critical_tokens_never_verify() {
        let key = key();
        let claims = part(&json!({"iss": "i"}));
        for header in [
            json!({"alg": "none"}),
            json!({"alg": "None"}),
            json!({"alg": "HS256"}),
            json!({"alg": "EdDSA"}),
            json!({"alg": "RS256"}),
            json!({}),
            json!({"alg": 5}),
        ] {
            for signature in ["", "AAAA", &"A".repeat(86)] {
                let text = format!("{}.{claims}.{signature}", part(&header));
                let token = Token::parse(&text).unwrap();
                assert!(!token.verify(key.public_key()), "{header}");
            }
        }
        // A good signature does not help a token whose extensions must be understood.
        let signed = format!("{}.{claims}", part(&json!({"alg": "ES256", "crit": ["x"], "x": 1})));
        let pair = aws_lc_rs::signature::EcdsaKeyPair::generate(
            &aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        )
        .unwrap();
        let signature = pair.sign(&aws_lc_rs::rand::SystemRandom::new(), signed.as_bytes()).unwrap();
        let public =
            super::super::public_key::spki(aws_lc_rs::signature::KeyPair::public_key(&pair)).unwrap();
        let public = PublicKey::from_spki(public.as_ref()).unwrap();
        let text = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
        assert!(!Token::parse(&text).unwrap().verify(&public));
    }

    #[test]
    fn keys_survive_the_way_through_a_key_set() {
        let algorithms =
            [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ECDSA_P521_SHA512];
        for algorithm in algorithms {
            let pair = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let key = SigningKey::from_pem(pair.serialize_pem().as_bytes()).unwrap();
            let set = KeySet::new(PublicKey::all_from_pem(pair.public_key_pem().as_bytes()).unwrap());
            assert_eq!(set.keys()[0].key_id(), key.public_key().key_id());
            let again = KeySet::parse(set.to_json().to_string().as_bytes()).unwrap();
            let text = key.sign(&json!({})).unwrap();
            assert!(again.verifies(&Token::parse(&text).unwrap()), "{:?}", key.algorithm());
        }
    }

    #[test]
    fn rsa_keys_sign_and_verify() {
        let pair = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        let pkcs8: aws_lc_rs::encoding::Pkcs8V1Der<'_> = aws_lc_rs::encoding::AsDer::as_der(&pair).unwrap();
        let key = SigningKey::from_der(pkcs8.as_ref()).unwrap();
        let text = key.sign(&json!({"iss": "i"})).unwrap();
        let token = Token::parse(&text).unwrap();
        assert_eq!(token.algorithm(), Some(Algorithm::Rs256));
        let set = KeySet::new(vec![key.public_key().clone()]).to_json();
        assert_eq!(
            (set["keys"][0]["kty"].as_str(), set["keys"][0]["e"].as_str()),
            (Some("RSA"), Some("AQAB"))
        );
        assert!(KeySet::parse(set.to_string().as_bytes()).unwrap().verifies(&token));
    }

    #[test]
    fn malformed_key_sets_are_refused_and_unknown_types_skipped() {
        for bad in [
            "",
            "[]",
            "{}",
            "{\"keys\": 1}",
            "{\"keys\": [{\"kty\": \"RSA\", \"n\": \"*\", \"e\": \"AQAB\"}]}",
        ] {
            assert!(KeySet::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let off_curve = json!({"keys": [{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}]});
        assert!(KeySet::parse(off_curve.to_string().as_bytes()).is_err());
        let others = json!({"keys": [
            {"kty": "oct", "k": "AQ"}, {"kty": "OKP", "crv": "Ed25519", "x": "AQ"}, {"kty": "RSA", "use": "enc"},
        ]});
        assert_eq!(KeySet::parse(others.to_string().as_bytes()), Ok(KeySet::default()));
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_random_tokens_never_verify(text in "\\PC{0,300}") {
            let key = key();
            prop_assert!(!Token::parse(&text).is_some_and(|token| token.verify(key.public_key())));
            let _ = KeySet::parse(text.as_bytes());
            let _ = PublicKey::all_from_pem(text.as_bytes());
        }

        #[test]
        fn a_changed_byte_never_verifies(index in 0_usize..200, replacement in "[A-Za-z0-9_-]") {
            let key = key();
            let text = key.sign(&json!({"iss": "issuer", "sub": "subject", "aud": ["audience"]})).unwrap();
            let index = index % text.len();
            let mut changed = text.clone();
            changed.replace_range(index..=index, &replacement);
            // The last character of a part has bits that are not part of it.
            let same = changed == text;
            let verified = Token::parse(&changed).is_some_and(|token| token.verify(key.public_key()));
            prop_assert!(same || !verified);
        }
    }
}
