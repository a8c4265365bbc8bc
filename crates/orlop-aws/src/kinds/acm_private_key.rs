//! Private keys that ACM exports: PKCS #8, encrypted with a passphrase by PBES2 (RFC 8018).

use std::num::NonZeroU32;

use aws_lc_rs::{
    cipher::{AES_128, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey},
    iv::FixedLength,
    pbkdf2,
};
use base64::Engine as _;

use crate::client::{Failure, Result};

/// Object identifiers, as they are encoded.
const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0c];
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02];
const AES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01];

/// Tags of DER.
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// Iterations at most: an answer does not decide how long we compute.
const ITERATIONS_MAX: u32 = 10_000_000;

/// Decrypts a key in PEM. Returns it in PEM, as PKCS #8.
pub(super) fn decrypt(pem: &str, passphrase: &[u8]) -> Result<String> {
    let failed = || Failure::Recoverable("the exported private key cannot be decrypted".to_owned());
    let lines = pem.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
    let der =
        base64::engine::general_purpose::STANDARD.decode(lines.collect::<String>()).map_err(|_| failed())?;
    let plain = decrypt_der(&der, passphrase).ok_or_else(failed)?;
    let text = base64::engine::general_purpose::STANDARD.encode(plain);
    let mut out = String::from("-----BEGIN PRIVATE KEY-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str("-----END PRIVATE KEY-----\n");
    Ok(out)
}

fn decrypt_der(der: &[u8], passphrase: &[u8]) -> Option<Vec<u8>> {
    let mut key = Der(Der(der).take(SEQUENCE)?);
    let mut scheme = Der(key.take(SEQUENCE)?);
    let data = key.take(OCTETS)?;
    (scheme.take(OBJECT)? == PBES2).then_some(())?;
    let mut parameters = Der(scheme.take(SEQUENCE)?);
    let mut derivation = Der(parameters.take(SEQUENCE)?);
    let mut encryption = Der(parameters.take(SEQUENCE)?);
    (derivation.take(OBJECT)? == PBKDF2).then_some(())?;
    let mut derivation = Der(derivation.take(SEQUENCE)?);
    let salt = derivation.take(OCTETS)?;
    let iterations = number(derivation.take(INTEGER)?)?;
    // The length of the key follows from the cipher; some write it too.
    derivation.take(INTEGER);
    let hash = match derivation.take(SEQUENCE) {
        None => pbkdf2::PBKDF2_HMAC_SHA1,
        Some(function) => match Der(function).take(OBJECT)?.strip_prefix(HMAC)? {
            [7] => pbkdf2::PBKDF2_HMAC_SHA1,
            [9] => pbkdf2::PBKDF2_HMAC_SHA256,
            [10] => pbkdf2::PBKDF2_HMAC_SHA384,
            [11] => pbkdf2::PBKDF2_HMAC_SHA512,
            _ => return None,
        },
    };
    let (cipher, length): (&'static Algorithm, usize) = match encryption.take(OBJECT)?.strip_prefix(AES)? {
        [2] => (&AES_128, 16),
        [42] => (&AES_256, 32),
        _ => return None,
    };
    let vector: [u8; 16] = encryption.take(OCTETS)?.try_into().ok()?;
    let mut secret = vec![0; length];
    let iterations = NonZeroU32::new(iterations).filter(|number| number.get() <= ITERATIONS_MAX)?;
    pbkdf2::derive(hash, iterations, salt, passphrase, &mut secret);
    let unbound = UnboundCipherKey::new(cipher, &secret).ok()?;
    let decrypting = PaddedBlockDecryptingKey::cbc_pkcs7(unbound).ok()?;
    let mut buffer = data.to_vec();
    let context = DecryptionContext::Iv128(FixedLength::from(vector));
    let plain = decrypting.decrypt(&mut buffer, context).ok()?;
    // Padding may fit by chance; a key is a sequence of exactly that length.
    let mut whole = Der(plain);
    whole.take(SEQUENCE)?;
    whole.0.is_empty().then(|| plain.to_vec())
}

/// A reader of DER.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Takes the contents of the next value, if it has this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (&found, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        if found != tag {
            return None;
        }
        let (length, rest) = match first {
            short @ 0..=0x7f => (usize::from(short), rest),
            long => {
                let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                (usize::try_from(number(bytes)?).ok()?, rest)
            }
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(contents)
    }
}

/// Reads a number of four bytes at most.
fn number(bytes: &[u8]) -> Option<u32> {
    let bytes = if let [0, rest @ ..] = bytes { rest } else { bytes };
    (bytes.len() <= 4).then(|| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::decrypt;

    /// Made with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -aes-256-cbc -pass pass:correct`.
    const ENCRYPTED: &str = "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAixqhAk5Jk7OAICCAAw\n\
        DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEELY1c3ePk8aQiZm29AlMzdoEgZCV\n\
        WuCpa324eDv1vhn1BIg6rGEY8Ecyq8Mu7Bj1DujyUU886/FdXvAOEz8J7Vwr1y9F\n\
        c37j9ipGhWwVw9sDeKyQSnGmtAeGdHWX+z6OKgj89joSGfnsL3aQc/tfcYldkj/3\n\
        htGYNUYp4/vWd3c7n5138Sl90XRgD2hfubiw7oBWiH4zvou04GsMf6oY9htK6CU=";

    #[test]
    fn key_of_openssl_is_decrypted_with_its_passphrase_alone() {
        let plain = decrypt(ENCRYPTED, b"correct").expect("a key");
        assert!(plain.starts_with("-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49"), "{plain}");
        assert!(plain.ends_with("-----END PRIVATE KEY-----\n"));
        assert!(decrypt(ENCRYPTED, b"wrong").is_err());
        assert!(decrypt("AAAA", b"correct").is_err());
    }
}
