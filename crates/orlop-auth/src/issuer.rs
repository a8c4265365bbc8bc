//! Issuer of service account tokens: names, keys and limits.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use serde_json::{Value, json};

use crate::jose::{KeyError, KeySet, PublicKey, SigningKey, Token};

/// Default name of the issuer, the `iss` of tokens.
const NAME: &str = "https://kubernetes.default.svc";
/// Path of the key set.
const KEYS_PATH: &str = "/openid/v1/jwks";
/// Lifetime of a token of a pod that asks for [`WARN_AFTER_SECONDS`]: a year.
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;
/// Lifetime that kubelets ask for on behalf of old clients, which do not read their token again.
pub const WARN_AFTER_SECONDS: i64 = 60 * 60 + 7;

/// A signing key cannot be generated or used.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// No key could be generated.
    #[error("cannot generate a service account key")]
    Generate(#[from] rcgen::Error),
    /// The key cannot be used.
    #[error("the service account key cannot be used: {0}")]
    Key(#[from] KeyError),
    /// A name is empty, given twice, or no URL.
    #[error("{0}")]
    Name(String),
}

/// Signs and verifies tokens.
#[derive(Debug)]
pub struct Issuer {
    /// The first is that of new tokens; tokens of all are accepted.
    names: Vec<String>,
    keys: ArcSwap<Keys>,
    keys_uri: Option<String>,
    max_expiration: Option<Duration>,
    extends_expiration: bool,
}

/// Keys of an issuer, which are replaced together.
#[derive(Clone, Debug)]
struct Keys {
    signing: Arc<SigningKey>,
    /// Keys that tokens are verified with. The first is the one that signs.
    accepted: KeySet,
}

impl Issuer {
    /// Returns an issuer with a generated key.
    pub fn generate() -> Result<Self, IssuerError> {
        let key = rcgen::KeyPair::generate()?;
        Self::from_pem(&key.serialize_pem())
    }

    /// Returns an issuer with an RSA or ECDSA key in PEM.
    pub fn from_pem(pem: &str) -> Result<Self, IssuerError> {
        let signing = SigningKey::from_pem(pem.as_bytes())?;
        let accepted = KeySet::new(vec![signing.public_key().clone()]);
        Ok(Self {
            names: vec![NAME.to_owned()],
            keys: ArcSwap::from_pointee(Keys { signing: Arc::new(signing), accepted }),
            keys_uri: None,
            max_expiration: None,
            extends_expiration: true,
        })
    }

    /// Sets the names. Tokens have the first; tokens with any of them are accepted. Without names the default stays.
    pub fn with_names(mut self, names: Vec<String>) -> Result<Self, IssuerError> {
        for (index, name) in names.iter().enumerate() {
            if name.is_empty() {
                let why = "service-account-issuer should not be an empty string";
                return Err(IssuerError::Name(why.to_owned()));
            }
            if names.iter().take(index).any(|earlier| earlier == name) {
                return Err(IssuerError::Name(format!(
                    "service-account-issuer {name:?} is already specified"
                )));
            }
            if name.contains(':') && name.parse::<http::Uri>().is_err() {
                let why = format!("service-account-issuer {name:?} contained a ':' but was not a valid URL");
                return Err(IssuerError::Name(why));
            }
        }
        if !names.is_empty() {
            self.names = names;
        }
        Ok(self)
    }

    /// Adds keys that tokens are accepted from, so that keys can be rotated.
    #[must_use]
    pub fn with_keys(self, keys: Vec<PublicKey>) -> Self {
        let mut replaced = Keys::clone(&self.keys.load());
        let mut all = replaced.accepted.keys().to_vec();
        for key in keys {
            if !all.iter().any(|known| known.key_id() == key.key_id()) {
                all.push(key);
            }
        }
        replaced.accepted = KeySet::new(all);
        self.keys.store(Arc::new(replaced));
        self
    }

    /// Takes over the keys of another issuer: new tokens are signed and all are verified with those.
    pub fn replace_keys(&self, other: &Self) {
        self.keys.store(other.keys.load_full());
    }

    /// Sets the address of the key set in the discovery document.
    pub fn with_keys_uri(mut self, uri: Option<String>) -> Result<Self, IssuerError> {
        if let Some(uri) = &uri
            && !uri.starts_with("https://")
        {
            let why = format!("service-account-jwks-uri requires https scheme, parsed as: {uri}");
            return Err(IssuerError::Name(why));
        }
        self.keys_uri = uri;
        Ok(self)
    }

    /// Sets the longest lifetime of tokens.
    #[must_use]
    pub fn with_max_expiration(mut self, maximum: Option<Duration>) -> Self {
        self.max_expiration = maximum.filter(|maximum| !maximum.is_zero());
        self
    }

    /// Sets whether tokens of pods whose clients may be old live for a year.
    #[must_use]
    pub fn with_extended_expiration(mut self, extends: bool) -> Self {
        self.extends_expiration = extends;
        self
    }

    /// Returns the issuer's name in new tokens.
    pub fn name(&self) -> &str {
        self.names.first().map_or(NAME, String::as_str)
    }

    /// Returns the names of which tokens are accepted.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the longest lifetime of tokens in seconds, if there is a limit.
    pub fn max_expiration_seconds(&self) -> Option<i64> {
        self.max_expiration.map(|maximum| i64::try_from(maximum.as_secs()).unwrap_or(i64::MAX))
    }

    /// Returns the lifetime in seconds instead of the requested one, for a pod's token to the API server whose client
    /// may not renew it.
    pub fn extended_expiration_seconds(&self, requested: i64) -> Option<i64> {
        (self.extends_expiration && requested == WARN_AFTER_SECONDS).then_some(EXTENDED_SECONDS)
    }

    /// Returns the OpenID discovery document, unless the issuer's name is not one that OpenID allows: an https URL
    /// without query and fragment.
    pub fn discovery(&self) -> Option<Value> {
        let name = self.name();
        if !name.starts_with("https://") || name.contains(['?', '#']) {
            return None;
        }
        let keys_uri =
            self.keys_uri.clone().unwrap_or_else(|| format!("{}{KEYS_PATH}", name.trim_end_matches('/')));
        let keys = self.keys.load();
        let mut algorithms: Vec<_> = keys.accepted.keys().iter().map(PublicKey::default_algorithm).collect();
        algorithms.sort();
        algorithms.dedup();
        let algorithms: Vec<_> = algorithms.iter().map(|algorithm| algorithm.name()).collect();
        Some(json!({
            "issuer": name, "jwks_uri": keys_uri,
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        }))
    }

    /// Returns the public keys as a JSON Web Key Set.
    pub fn key_set(&self) -> Value {
        self.keys.load().accepted.to_json()
    }

    /// Signs claims.
    pub fn sign(&self, claims: &Value) -> Result<String, IssuerError> {
        Ok(self.keys.load().signing.sign(claims)?)
    }

    /// Checks the signature of a token. An error says why it is not of this issuer's keys.
    pub fn verify(&self, token: &Token<'_>) -> Result<(), &'static str> {
        let keys = self.keys.load();
        if !keys.accepted.has_candidate(token) {
            return Err("invalid signature, no keys found");
        }
        if keys.accepted.verifies(token) { Ok(()) } else { Err("invalid signature") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verifies(issuer: &Issuer, token: &str) -> bool {
        issuer.verify(&Token::parse(token).unwrap()).is_ok()
    }

    #[test]
    fn rotated_keys_are_accepted_and_published() {
        let (old, new) = (Issuer::generate().unwrap(), Issuer::generate().unwrap());
        let token = old.sign(&json!({"iss": NAME})).unwrap();
        assert!(verifies(&old, &token) && !verifies(&new, &token));
        let old_keys = || old.keys.load().accepted.keys().to_vec();
        let new = new.with_keys(old_keys()).with_keys(old_keys());
        assert!(verifies(&new, &token) && verifies(&new, &new.sign(&json!({})).unwrap()));
        assert_eq!(new.key_set()["keys"].as_array().unwrap().len(), 2);
        assert_eq!(new.discovery().unwrap()["id_token_signing_alg_values_supported"], json!(["ES256"]));
        let last = Issuer::generate().unwrap();
        new.replace_keys(&last);
        assert!(!verifies(&new, &token) && verifies(&last, &new.sign(&json!({})).unwrap()));
        assert_eq!(new.key_set(), last.key_set());
    }

    #[test]
    fn names_are_validated_and_openid_needs_a_url() {
        let named = |names: &[&str]| {
            Issuer::generate().unwrap().with_names(names.iter().map(|name| (*name).to_owned()).collect())
        };
        let issuer = named(&["https://a.example.org/x", "old"]).unwrap();
        assert_eq!(issuer.discovery().unwrap()["jwks_uri"], "https://a.example.org/x/openid/v1/jwks");
        assert_eq!(issuer.names(), ["https://a.example.org/x", "old"]);
        assert_eq!(named(&["cluster"]).unwrap().discovery(), None);
        assert_eq!(named(&[]).unwrap().name(), NAME);
        for bad in [&["a", "a"][..], &[""], &["http:// x"]] {
            assert!(named(bad).is_err(), "{bad:?}");
        }
        assert!(Issuer::generate().unwrap().with_keys_uri(Some("http://x".to_owned())).is_err());
    }
}
