//! Detached signatures of a text with a bootstrap token: JWS of HS256 without the payload.

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

/// Signs a text. The key is the secret of the token, and its id that of the token.
pub(super) fn sign(content: &str, id: &str, secret: &str) -> String {
    // Both are of the alphabet of tokens: nothing has to be escaped.
    let header = URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{id}\"}}"));
    let payload = URL_SAFE_NO_PAD.encode(content);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{header}.{payload}").as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_the_one_of_kubernetes() {
        let expected =
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8";
        let content = "Hello from the other side. I must have called a thousand times.";
        assert_eq!(sign(content, "joshua", "my voice is my passcode"), expected);
    }
}
