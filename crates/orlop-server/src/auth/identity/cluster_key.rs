//! The key that a cluster's secrets are sealed with: AES-256-GCM.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Error;

const KEY_BYTES: usize = 32;
/// Larger files are not keys.
const FILE_BYTES_MAX: u64 = 4096;

/// A cluster key and the file it is in. Not `Debug` by derive: it stays out of logs.
pub struct ClusterKey {
    path: PathBuf,
    id: String,
    aead: RandomizedNonceKey,
}

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterKey").field("path", &self.path).field("id", &self.id).finish_non_exhaustive()
    }
}

/// A value encrypted and authenticated with a cluster key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sealed {
    /// Version of this format.
    version: u32,
    /// Id of the key, so that a wrong one is told from damage.
    key_id: String,
    nonce: String,
    ciphertext: String,
}

/// Version of [`Sealed`] that this program reads and writes.
const FORMAT_VERSION: u32 = 1;

impl ClusterKey {
    /// Reads the key in a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = |source| Error::File { path: path.to_owned(), source };
        let bad = || Error::BadKey { path: path.to_owned() };
        if fs::metadata(path).map_err(file)?.len() > FILE_BYTES_MAX {
            return Err(bad());
        }
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(bad()),
            read => read.map_err(file)?,
        };
        let bytes = STANDARD.decode(text.trim()).map_err(|_| bad())?;
        Self::new(path, &bytes).ok_or_else(bad)
    }

    /// Generates a key. `write` writes the content of its file, which only the owner must be able to read.
    pub fn generate(path: &Path, write: impl FnOnce(&[u8]) -> io::Result<()>) -> Result<Self, Error> {
        let bytes: [u8; KEY_BYTES] = rand::random();
        write(format!("{}\n", STANDARD.encode(bytes)).as_bytes())
            .map_err(|source| Error::File { path: path.to_owned(), source })?;
        Self::new(path, &bytes).ok_or_else(|| Error::BadKey { path: path.to_owned() })
    }

    fn new(path: &Path, bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; KEY_BYTES] = bytes.try_into().ok()?;
        let digest = Sha256::new().chain_update("orlop cluster key").chain_update(bytes).finalize();
        let id = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let aead = RandomizedNonceKey::new(&AES_256_GCM, bytes).ok()?;
        Some(Self { path: path.to_owned(), id, aead })
    }

    /// Returns the file of the key.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Encrypts a value. `name` is authenticated with it: a value sealed under one name does not open under
    /// another.
    pub(super) fn seal(&self, name: &str, plaintext: Vec<u8>) -> Result<Sealed, Error> {
        let mut bytes = plaintext;
        let nonce = self
            .aead
            .seal_in_place_append_tag(Aad::from(name), &mut bytes)
            .map_err(|_| Error::Damaged("encryption failed".to_owned()))?;
        Ok(Sealed {
            version: FORMAT_VERSION,
            key_id: self.id.clone(),
            nonce: STANDARD.encode(nonce.as_ref()),
            ciphertext: STANDARD.encode(bytes),
        })
    }

    /// Decrypts a value that was sealed under `name`.
    pub(super) fn open(&self, name: &str, sealed: &Sealed) -> Result<Vec<u8>, Error> {
        if sealed.version != FORMAT_VERSION {
            return Err(Error::Damaged(format!(
                "format version {} is not {FORMAT_VERSION}, which this program reads",
                sealed.version
            )));
        }
        if sealed.key_id != self.id {
            return Err(Error::WrongKey {
                path: self.path.clone(),
                found: self.id.clone(),
                expected: sealed.key_id.clone(),
            });
        }
        let damaged = || Error::Damaged("decryption failed".to_owned());
        let nonce = STANDARD.decode(&sealed.nonce).map_err(|_| damaged())?;
        let nonce = Nonce::try_assume_unique_for_key(&nonce).map_err(|_| damaged())?;
        let mut bytes = STANDARD.decode(&sealed.ciphertext).map_err(|_| damaged())?;
        let length =
            self.aead.open_in_place(nonce, Aad::from(name), &mut bytes).map_err(|_| damaged())?.len();
        bytes.truncate(length);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_values_open_with_the_same_key_and_name_only() {
        let folder = tempfile::tempdir().unwrap();
        let generate = |name: &str| {
            let path = folder.path().join(name);
            ClusterKey::generate(&path, |content| fs::write(&path, content)).unwrap()
        };
        let (key, other) = (generate("a.key"), generate("b.key"));
        let mut sealed = key.seal("secrets", b"value".to_vec()).unwrap();
        assert!(!sealed.ciphertext.contains(&STANDARD.encode("value")));
        let again = ClusterKey::read(&folder.path().join("a.key")).unwrap();
        assert_eq!(again.open("secrets", &sealed).unwrap(), b"value");
        assert!(matches!(key.open("others", &sealed), Err(Error::Damaged(_))));
        assert!(matches!(other.open("secrets", &sealed), Err(Error::WrongKey { .. })));
        sealed.ciphertext.replace_range(0..1, if sealed.ciphertext.starts_with('A') { "B" } else { "A" });
        assert!(matches!(key.open("secrets", &sealed), Err(Error::Damaged(_))));
    }

    #[test]
    fn files_without_a_key_are_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        assert!(matches!(ClusterKey::read(&path), Err(Error::File { .. })));
        for content in ["", "short", "c2hvcnQ=", "\u{0}", &"A".repeat(5000)] {
            fs::write(&path, content).unwrap();
            let error = ClusterKey::read(&path).unwrap_err();
            assert!(matches!(&error, Error::BadKey { .. }), "{content:?}: {error}");
            assert!(error.to_string().contains("cluster.key"), "{error}");
        }
    }
}
