//! JSON Web Key Sets (RFC 7517).

use serde_json::{Value, json};

use super::{KeyError, PublicKey, Token};

/// Keys of a set beyond this number are ignored.
const KEYS_MAX: usize = 256;

/// Public keys of an issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet(Vec<PublicKey>);

impl KeySet {
    /// Returns a set of keys.
    pub fn new(keys: Vec<PublicKey>) -> Self {
        Self(keys)
    }

    /// Parses a set. Keys of unsupported types are left out; malformed ones are an error.
    pub fn parse(text: &[u8]) -> Result<Self, KeyError> {
        let set: Value = serde_json::from_slice(text)
            .map_err(|error| KeyError(format!("failed to decode keys: {error}")))?;
        let keys = set.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or_else(|| KeyError("failed to decode keys: no field \"keys\"".to_owned()))?;
        let keys = keys.iter().take(KEYS_MAX).filter_map(|key| PublicKey::from_jwk(key).transpose());
        Ok(Self(keys.collect::<Result<_, _>>()?))
    }

    /// Returns the keys.
    pub fn keys(&self) -> &[PublicKey] {
        &self.0
    }

    /// Returns the set as JSON.
    pub fn to_json(&self) -> Value {
        json!({"keys": self.0.iter().map(PublicKey::to_jwk).collect::<Vec<_>>()})
    }

    /// Returns true if a key of the set has signed a token. Only keys with the token's key id are tried, or all
    /// if it has none.
    pub fn verifies(&self, token: &Token<'_>) -> bool {
        self.candidates(token).any(|key| token.verify(key))
    }

    /// Returns true if the set has a key for a token.
    pub fn has_candidate(&self, token: &Token<'_>) -> bool {
        self.candidates(token).next().is_some()
    }

    fn candidates<'a>(&'a self, token: &'a Token<'_>) -> impl Iterator<Item = &'a PublicKey> {
        self.0.iter().filter(|key| token.key_id().is_none_or(|id| id == key.key_id()))
    }
}
