//! AES-CBC with PKCS#7 padding. Not authenticated: for data of clusters that used it.

use aws_lc_rs::{
    cipher::{
        AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey,
        PaddedBlockEncryptingKey, UnboundCipherKey,
    },
    iv::{FixedLength, IV_LEN_128_BIT},
};
use bytes::{BufMut, Bytes, BytesMut};

use super::Cipher;

/// AES-CBC with one key.
pub(super) struct Cbc {
    encrypting: PaddedBlockEncryptingKey,
    decrypting: PaddedBlockDecryptingKey,
}

impl Cbc {
    /// Returns a cipher; `None` if the key has another length than AES'.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        let algorithm: &'static Algorithm = match key.len() {
            16 => &AES_128,
            24 => &AES_192,
            32 => &AES_256,
            _ => return None,
        };
        let unbound = || UnboundCipherKey::new(algorithm, key);
        Some(Self {
            encrypting: PaddedBlockEncryptingKey::cbc_pkcs7(unbound().ok()?).ok()?,
            decrypting: PaddedBlockDecryptingKey::cbc_pkcs7(unbound().ok()?).ok()?,
        })
    }
}

impl Cipher for Cbc {
    fn encrypt(&self, value: &[u8], _: &[u8], to: &mut BytesMut) -> Result<(), String> {
        let failed = |_| "cipher: encryption failed".to_owned();
        let mut encrypted = value.to_vec();
        let context = self.encrypting.encrypt(&mut encrypted).map_err(failed)?;
        let iv: &[u8] = (&context).try_into().map_err(failed)?;
        to.put_slice(iv);
        to.put_slice(&encrypted);
        Ok(())
    }

    fn decrypt(&self, ciphertext: &[u8], _: &[u8]) -> Result<Bytes, String> {
        let Some((iv, encrypted)) = ciphertext.split_first_chunk::<IV_LEN_128_BIT>() else {
            return Err("the stored data was shorter than the required size".to_owned());
        };
        if !encrypted.len().is_multiple_of(16) {
            return Err("the stored data is not a multiple of the block size".to_owned());
        }
        if encrypted.is_empty() {
            return Err("invalid PKCS7 data (empty or not padded)".to_owned());
        }
        let mut decrypted = encrypted.to_vec();
        let context = DecryptionContext::Iv128(FixedLength::from(iv));
        let length = match self.decrypting.decrypt(&mut decrypted, context) {
            Ok(value) => value.len(),
            Err(_) => return Err("invalid padding on input".to_owned()),
        };
        decrypted.truncate(length);
        Ok(decrypted.into())
    }
}
