//! Ciphers with keys from the configuration.
//!
//! A ciphertext carries the name of its key. The first key encrypts, all decrypt.

mod aescbc;
mod aesgcm;
mod secretbox;

pub(crate) use aesgcm::Gcm;

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::config::{ConfigError, KeysConfig};

/// Prefix of every encrypted value.
pub(crate) const ENCRYPTED: &[u8] = b"k8s:enc:";

/// A cipher with one key.
pub(crate) trait Cipher: Send + Sync {
    /// Appends the ciphertext of a value.
    fn encrypt(&self, value: &[u8], authenticated: &[u8], to: &mut BytesMut) -> Result<(), String>;

    /// Decrypts a ciphertext.
    fn decrypt(&self, ciphertext: &[u8], authenticated: &[u8]) -> Result<Bytes, String>;
}

/// Kinds of ciphers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    AesGcm,
    AesCbc,
    Secretbox,
}

impl Algorithm {
    fn prefix(self) -> &'static [u8] {
        match self {
            Self::AesGcm => b"k8s:enc:aesgcm:v1:",
            Self::AesCbc => b"k8s:enc:aescbc:v1:",
            Self::Secretbox => b"k8s:enc:secretbox:v1:",
        }
    }

    fn cipher(self, key: &[u8]) -> Option<Box<dyn Cipher>> {
        Some(match self {
            Self::AesGcm => Box::new(Gcm::new(key)?),
            Self::AesCbc => Box::new(aescbc::Cbc::new(key)?),
            Self::Secretbox => Box::new(secretbox::Secretbox::new(key)?),
        })
    }
}

/// A cipher with several keys.
pub(crate) struct Keyring {
    algorithm: Algorithm,
    keys: Vec<(String, Box<dyn Cipher>)>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.keys.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Keyring").field("algorithm", &self.algorithm).field("keys", &names).finish()
    }
}

/// A decrypted value, and true if another key than the first decrypted it.
pub(crate) type Opened = Result<(Bytes, bool), String>;

impl Keyring {
    pub(crate) fn new(algorithm: Algorithm, config: &KeysConfig) -> Result<Self, ConfigError> {
        let mut keys = Vec::with_capacity(config.keys.len());
        for key in &config.keys {
            let cipher = algorithm.cipher(&key.bytes());
            let failed = || ConfigError(format!("error while creating cipher for named key {}", key.name));
            keys.push((key.name.clone(), cipher.ok_or_else(failed)?));
        }
        Ok(Self { algorithm, keys })
    }

    /// Encrypts with the first key.
    pub(crate) fn encrypt(&self, value: &[u8], authenticated: &[u8]) -> Result<Bytes, String> {
        let (name, cipher) = self.keys.first().ok_or("the provider has no keys")?;
        let prefix = self.algorithm.prefix();
        let mut encrypted = BytesMut::with_capacity(prefix.len() + name.len() + value.len() + 64);
        encrypted.put_slice(prefix);
        encrypted.put_slice(name.as_bytes());
        encrypted.put_u8(b':');
        cipher.encrypt(value, authenticated, &mut encrypted)?;
        Ok(encrypted.freeze())
    }

    /// Decrypts a value of this algorithm; `None` if it is of another.
    pub(crate) fn decrypt(&self, stored: &[u8], authenticated: &[u8]) -> Option<Opened> {
        let rest = stored.strip_prefix(self.algorithm.prefix())?;
        let mut errors = Vec::new();
        for (index, (name, cipher)) in self.keys.iter().enumerate() {
            let of_key = rest.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b":"));
            let Some(ciphertext) = of_key else { continue };
            match cipher.decrypt(ciphertext, authenticated) {
                Ok(value) => return Some(Ok((value, index > 0))),
                Err(error) => errors.push(error),
            }
        }
        Some(Err(match errors.len() {
            0 if self.algorithm == Algorithm::Secretbox => {
                "no matching key was found for the provided Secretbox transformer".to_owned()
            }
            0 => "no matching key was found for the provided AES transformer".to_owned(),
            _ => orlop_api::field_error::aggregate(&errors),
        }))
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use proptest::prelude::*;

    use super::*;
    use crate::config::KeyConfig;

    const ALGORITHMS: [Algorithm; 3] = [Algorithm::AesGcm, Algorithm::AesCbc, Algorithm::Secretbox];

    fn keyring(algorithm: Algorithm, keys: &[(&str, u8)]) -> Keyring {
        let key = |(name, byte): &(&str, u8)| KeyConfig {
            name: (*name).to_owned(),
            secret: STANDARD.encode([*byte; 32]),
        };
        Keyring::new(algorithm, &KeysConfig { keys: keys.iter().map(key).collect() }).unwrap()
    }

    proptest! {
        #[test]
        fn values_survive_and_look_like_kubernetes(value in proptest::collection::vec(any::<u8>(), 0..200)) {
            for algorithm in ALGORITHMS {
                let ring = keyring(algorithm, &[("one", 1)]);
                let stored = ring.encrypt(&value, b"/registry/a").unwrap();
                let start = [algorithm.prefix(), b"one:"].concat();
                prop_assert!(stored.starts_with(&start));
                let (opened, stale) = ring.decrypt(&stored, b"/registry/a").unwrap().unwrap();
                prop_assert_eq!(&opened[..], &value[..]);
                prop_assert!(!stale);
                prop_assert_ne!(ring.encrypt(&value, b"/registry/a").unwrap(), stored, "nonces are random");
            }
        }

        #[test]
        fn damaged_ciphertext_never_decrypts_and_never_panics(place in 0usize..60, bit in 0u8..8, cut in 0usize..80) {
            for algorithm in [Algorithm::AesGcm, Algorithm::Secretbox] {
                let ring = keyring(algorithm, &[("one", 1)]);
                let stored = ring.encrypt(b"the value of a secret", b"a").unwrap();
                let header = algorithm.prefix().len() + 4;
                let mut damaged = stored.to_vec();
                let place = header + place % (damaged.len() - header);
                damaged[place] ^= 1 << bit;
                prop_assert!(ring.decrypt(&damaged, b"a").unwrap().is_err());
                let end = stored.len().saturating_sub(1 + cut).max(header);
                prop_assert!(ring.decrypt(&stored[..end], b"a").unwrap().is_err());
            }
            // AES-CBC is not authenticated: it may decrypt to nonsense, and must not panic.
            let ring = keyring(Algorithm::AesCbc, &[("one", 1)]);
            let stored = ring.encrypt(b"value", b"a").unwrap();
            let end = stored.len().saturating_sub(cut);
            let _ = ring.decrypt(&stored[..end], b"a");
        }
    }

    #[test]
    fn later_keys_read_and_are_stale() {
        for algorithm in ALGORITHMS {
            let old = keyring(algorithm, &[("old", 1)]).encrypt(b"value", b"a").unwrap();
            let ring = keyring(algorithm, &[("new", 2), ("old", 1)]);
            assert_eq!(ring.decrypt(&old, b"a").unwrap().unwrap(), (Bytes::from_static(b"value"), true));
            let without = keyring(algorithm, &[("new", 2)]);
            assert!(
                without.decrypt(&old, b"a").unwrap().unwrap_err().starts_with("no matching key was found")
            );
            let wrong = keyring(algorithm, &[("old", 3)]);
            if algorithm != Algorithm::AesCbc {
                assert!(wrong.decrypt(&old, b"a").unwrap().is_err());
            }
            assert!(ring.decrypt(b"k8s:enc:kms:v2:x:", b"a").is_none());
        }
    }

    #[test]
    fn ciphertext_of_another_storage_key_does_not_decrypt() {
        let ring = keyring(Algorithm::AesGcm, &[("one", 1)]);
        let stored = ring.encrypt(b"value", b"/registry/core/secrets/a/x").unwrap();
        assert!(ring.decrypt(&stored, b"/registry/core/secrets/a/y").unwrap().is_err());
    }

    #[test]
    fn every_key_length_of_aes_has_kubernetes_layout() {
        for length in [16, 24, 32] {
            let gcm = Gcm::new(&vec![7; length]).unwrap();
            let mut sealed = BytesMut::new();
            gcm.encrypt(b"x", b"k", &mut sealed).unwrap();
            // Nonce, ciphertext, tag.
            assert_eq!(sealed.len(), 12 + 1 + 16);
            assert_eq!(gcm.decrypt(&sealed, b"k").unwrap(), "x");
        }
        assert!(Gcm::new(&[7; 15]).is_none());
    }
}
