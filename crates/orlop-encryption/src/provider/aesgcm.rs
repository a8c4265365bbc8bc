//! AES-GCM with random nonces.

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use bytes::{BufMut, Bytes, BytesMut};

use super::Cipher;

/// Bytes of a nonce, which precedes the ciphertext.
const NONCE_BYTES: usize = 12;

/// AES-GCM with one key.
pub(crate) struct Gcm(LessSafeKey);

impl Gcm {
    /// Returns a cipher; `None` if the key has another length than AES'.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let algorithm = match key.len() {
            16 => &AES_128_GCM,
            24 => &AES_192_GCM,
            32 => &AES_256_GCM,
            _ => return None,
        };
        UnboundKey::new(algorithm, key).ok().map(LessSafeKey::new).map(Self)
    }
}

impl Cipher for Gcm {
    fn encrypt(&self, value: &[u8], authenticated: &[u8], to: &mut BytesMut) -> Result<(), String> {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        to.put_slice(&nonce);
        let mut sealed = value.to_vec();
        self.0
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(authenticated),
                &mut sealed,
            )
            .map_err(|_| "cipher: encryption failed".to_owned())?;
        to.put_slice(&sealed);
        Ok(())
    }

    fn decrypt(&self, ciphertext: &[u8], authenticated: &[u8]) -> Result<Bytes, String> {
        let Some((nonce, sealed)) = ciphertext.split_first_chunk::<NONCE_BYTES>() else {
            return Err("the stored data was shorter than the required size".to_owned());
        };
        let mut opened = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = match self.0.open_in_place(nonce, Aad::from(authenticated), &mut opened) {
            Ok(value) => value.len(),
            Err(_) => return Err("cipher: message authentication failed".to_owned()),
        };
        opened.truncate(length);
        Ok(opened.into())
    }
}
