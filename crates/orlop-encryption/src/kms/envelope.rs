//! The stored form of a value under a KMS key: an EncryptedObject, as Kubernetes encodes it.

use std::collections::BTreeMap;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use bytes::{Bytes, BytesMut};
use prost::Message;

use crate::provider::{Cipher, Gcm};

/// Bytes of a seed, of a derived key, and of the random bytes that a key is derived with.
pub(super) const SEED_BYTES: usize = 32;
/// The key of a value is derived from a seed and bytes that precede its ciphertext.
pub(super) const SEED: i32 = 1;
/// A value is encrypted with the key itself, as before Kubernetes 1.29.
const KEY: i32 = 0;

const KEY_ID_BYTES_MAX: usize = 1 << 10;
const SOURCE_BYTES_MAX: usize = 1 << 10;
const ANNOTATIONS_BYTES_MAX: usize = 32 << 10;

#[derive(Clone, PartialEq, Message)]
pub(super) struct EncryptedObject {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) data: Bytes,
    #[prost(string, tag = "2")]
    pub(super) key_id: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) source: Bytes,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
    #[prost(int32, tag = "5")]
    pub(super) source_type: i32,
}

/// Identifies an encrypted seed.
pub(super) type SourceId = (i32, Bytes, String, BTreeMap<String, Vec<u8>>);

impl EncryptedObject {
    /// Decodes and validates a stored object.
    pub(super) fn open(stored: &[u8]) -> Result<Self, String> {
        let object = Self::decode(stored).map_err(|error| format!("proto: {error}"))?;
        if object.data.is_empty() {
            return Err("encrypted data is empty".to_owned());
        }
        object.validate()?;
        Ok(object)
    }

    /// Validates what a plugin returned.
    pub(super) fn validate(&self) -> Result<(), String> {
        if self.source_type != KEY && self.source_type != SEED {
            return Err(format!("unknown encryptedDEKSourceType: {}", self.source_type));
        }
        let source = match self.source.len() {
            0 => Some("encrypted DEK source is empty".to_owned()),
            length if length > SOURCE_BYTES_MAX => Some(format!(
                "encrypted DEK source is {length} bytes, which exceeds the max size of {SOURCE_BYTES_MAX}"
            )),
            _ => None,
        };
        if let Some(why) = source {
            return Err(format!("failed to validate encrypted DEK source: {why}"));
        }
        validate_key_id(&self.key_id).map_err(|why| format!("failed to validate key id: {why}"))?;
        validate_annotations(&self.annotations)
            .map_err(|why| format!("failed to validate annotations: {why}"))
    }

    /// Returns the identity of its seed.
    pub(super) fn source_id(&self) -> SourceId {
        (self.source_type, self.source.clone(), self.key_id.clone(), self.annotations.clone())
    }
}

pub(super) fn validate_key_id(key_id: &str) -> Result<(), String> {
    match key_id.len() {
        0 => Err("keyID is empty".to_owned()),
        length if length > KEY_ID_BYTES_MAX => {
            Err(format!("keyID is {length} bytes, which exceeds the max size of {KEY_ID_BYTES_MAX}"))
        }
        _ => Ok(()),
    }
}

fn validate_annotations(annotations: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        return Err(format!(
            "total size of annotations is {bytes}, which exceeds the max size of {ANNOTATIONS_BYTES_MAX}"
        ));
    }
    for key in annotations.keys() {
        if !key.contains('.') || !orlop_api::names::dns1123_subdomain(key).is_empty() {
            let why = "should be a domain with at least two segments separated by dots";
            return Err(format!("annotations: Invalid value: {key:?}: {why}"));
        }
    }
    Ok(())
}

/// A decrypted data encryption key.
pub(super) enum DataKey {
    /// Keys of values are derived from it.
    Seed(Prk),
    /// The key of old values.
    Key(Gcm),
}

/// Length of a derived key.
struct DerivedKey;

impl KeyType for DerivedKey {
    fn len(&self) -> usize {
        SEED_BYTES
    }
}

impl DataKey {
    /// Returns a data encryption key of a type.
    pub(super) fn new(source_type: i32, bytes: &[u8]) -> Result<Self, String> {
        if source_type == KEY {
            return Gcm::new(bytes).map(Self::Key).ok_or_else(|| "crypto/aes: invalid key size".to_owned());
        }
        // Longer seeds than these are not made by Kubernetes, and would not fit the derivation.
        if !(SEED_BYTES..=64).contains(&bytes.len()) {
            return Err(format!("invalid seed length {} used for key generation", bytes.len()));
        }
        Ok(Self::Seed(Prk::new_less_safe(HKDF_SHA256, bytes)))
    }

    fn derived(seed: &Prk, info: &[u8]) -> Result<Gcm, String> {
        let mut key = [0; SEED_BYTES];
        let info = [info];
        let expanded = seed.expand(&info, DerivedKey).and_then(|expanded| expanded.fill(&mut key));
        expanded.map_err(|_| "failed to derive key from KDF".to_owned())?;
        Gcm::new(&key).ok_or_else(|| "failed to derive key from KDF".to_owned())
    }

    pub(super) fn encrypt(&self, value: &[u8], authenticated: &[u8]) -> Result<Bytes, String> {
        let Self::Seed(seed) = self else {
            return Err("a key of old values is not used for new ones".to_owned());
        };
        let mut encrypted = BytesMut::with_capacity(value.len() + 64);
        let info: [u8; SEED_BYTES] = rand::random();
        encrypted.extend_from_slice(&info);
        Self::derived(seed, &info)?.encrypt(value, authenticated, &mut encrypted)?;
        Ok(encrypted.freeze())
    }

    pub(super) fn decrypt(&self, data: &[u8], authenticated: &[u8]) -> Result<Bytes, String> {
        match self {
            Self::Key(key) => key.decrypt(data, authenticated),
            Self::Seed(seed) => {
                let Some((info, ciphertext)) = data.split_first_chunk::<SEED_BYTES>() else {
                    return Err("the stored data was shorter than the required size".to_owned());
                };
                Self::derived(seed, info)?.decrypt(ciphertext, authenticated)
            }
        }
    }
}
