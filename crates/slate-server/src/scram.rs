//! SCRAM-SHA-256 (RFC 7677), the server's side. One user, whose password is the server's token.

use std::num::NonZeroU32;

use aws_lc_rs::{constant_time, digest, hmac, pbkdf2};
use base64::{Engine as _, prelude::BASE64_STANDARD};

/// The user that every client authenticates as.
const USER: &str = "slate";
const ITERATIONS: u32 = 15_000;

/// Keys that the server derives from the password.
#[derive(Debug)]
pub(crate) struct Credentials {
    salt: [u8; 16],
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl Credentials {
    /// Derives the credentials of a password, which takes milliseconds on purpose.
    pub(crate) fn new(password: &str) -> Self {
        let salt: [u8; 16] = rand::random();
        let mut salted = [0; 32];
        let iterations = NonZeroU32::new(ITERATIONS).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &mut salted);
        let client_key = sign(&salted, b"Client Key");
        Self {
            salt,
            stored_key: digest::digest(&digest::SHA256, &client_key).as_ref().to_vec(),
            server_key: sign(&salted, b"Server Key"),
        }
    }
}

/// A conversation after the client's first message.
#[derive(Debug)]
pub(crate) struct Conversation {
    nonce: String,
    /// The client's first message, bare, and the server's first.
    transcript: String,
    /// Channel binding that the final message must repeat.
    binding: String,
}

impl Conversation {
    /// Answers the client's first message.
    pub(crate) fn start(credentials: &Credentials, first: &[u8]) -> Result<(Self, String), String> {
        let first = std::str::from_utf8(first).map_err(|error| error.to_string())?;
        let header = ["n,,", "y,,"].into_iter().find(|header| first.starts_with(header));
        let header = header.ok_or("channel binding is not supported")?;
        let bare = &first[header.len()..];
        let user = attribute(bare, 'n').ok_or("no user")?;
        if user != USER {
            return Err("authentication failed".to_owned());
        }
        let client_nonce = attribute(bare, 'r').filter(|nonce| !nonce.is_empty()).ok_or("no nonce")?;
        let server_nonce: [u8; 18] = rand::random();
        let nonce = format!("{client_nonce}{}", BASE64_STANDARD.encode(server_nonce));
        let reply = format!("r={nonce},s={},i={ITERATIONS}", BASE64_STANDARD.encode(credentials.salt));
        let transcript = format!("{bare},{reply}");
        Ok((Self { nonce, transcript, binding: BASE64_STANDARD.encode(header) }, reply))
    }

    /// Verifies the client's proof and returns the server's signature.
    pub(crate) fn finish(&self, credentials: &Credentials, last: &[u8]) -> Result<String, String> {
        let failed = || "authentication failed".to_owned();
        let last = std::str::from_utf8(last).map_err(|_| failed())?;
        let (without_proof, proof) = last.rsplit_once(",p=").ok_or_else(failed)?;
        if attribute(without_proof, 'r') != Some(&self.nonce)
            || attribute(without_proof, 'c') != Some(&self.binding)
        {
            return Err(failed());
        }
        let proof = BASE64_STANDARD.decode(proof).map_err(|_| failed())?;
        let message = format!("{},{without_proof}", self.transcript);
        let signature = sign(&credentials.stored_key, message.as_bytes());
        if proof.len() != signature.len() {
            return Err(failed());
        }
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let stored = digest::digest(&digest::SHA256, &client_key);
        constant_time::verify_slices_are_equal(stored.as_ref(), &credentials.stored_key)
            .map_err(|_| failed())?;
        Ok(format!("v={}", BASE64_STANDARD.encode(sign(&credentials.server_key, message.as_bytes()))))
    }
}

fn attribute(message: &str, name: char) -> Option<&str> {
    message.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

fn sign(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
}
