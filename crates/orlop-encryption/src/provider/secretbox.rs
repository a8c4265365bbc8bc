//! XSalsa20 and Poly1305 (NaCl's secretbox).

use bytes::{BufMut, Bytes, BytesMut};
use crypto_secretbox::{
    Key, Nonce, XSalsa20Poly1305,
    aead::{Aead, KeyInit},
};

use super::Cipher;

const NONCE_BYTES: usize = 24;
const OVERHEAD_BYTES: usize = 16;

/// A secretbox with one key.
pub(super) struct Secretbox(XSalsa20Poly1305);

impl Secretbox {
    /// Returns a cipher; `None` if the key is not 32 bytes long.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        let key: &[u8; 32] = key.try_into().ok()?;
        Some(Self(XSalsa20Poly1305::new(Key::from_slice(key))))
    }
}

impl Cipher for Secretbox {
    fn encrypt(&self, value: &[u8], _: &[u8], to: &mut BytesMut) -> Result<(), String> {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let sealed = self.0.encrypt(Nonce::from_slice(&nonce), value);
        to.put_slice(&nonce);
        to.put_slice(&sealed.map_err(|_| "cipher: encryption failed".to_owned())?);
        Ok(())
    }

    fn decrypt(&self, ciphertext: &[u8], _: &[u8]) -> Result<Bytes, String> {
        let sealed = ciphertext.split_first_chunk::<NONCE_BYTES>();
        let Some((nonce, sealed)) = sealed.filter(|(_, sealed)| sealed.len() >= OVERHEAD_BYTES) else {
            return Err("the stored data was shorter than the required size".to_owned());
        };
        let opened = self.0.decrypt(Nonce::from_slice(nonce), sealed);
        opened.map(Bytes::from).map_err(|_| "secretbox: message authentication failed".to_owned())
    }
}
