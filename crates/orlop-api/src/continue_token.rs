//! Continue tokens of paged lists.
//!
//! Opaque to clients, but the same as Kubernetes': base64url without padding of
//! `{"v":"meta.k8s.io/v1","rv":N,"start":"<key>\0"}`.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::{DecodeError, Engine};
use serde::{Deserialize, Serialize};

/// Position of the next page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// Revision of the first page; `None` for an inconsistent continuation at the newest revision.
    pub revision: Option<u64>,
    /// Start key, relative to the list's prefix.
    pub start_key: String,
}

/// Error of decoding a continue token; always a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    #[error("continue key is not valid: {0}")]
    Undecodable(String),
    #[error("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")]
    Revision,
    #[error("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")]
    EmptyKey,
    #[error("continue key is not valid: server does not recognize this encoded version \"{0}\"")]
    Version(String),
    #[error("continue key is not valid: {0}")]
    OutsideList(String),
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: String,
    rv: i64,
    start: String,
}

const VERSION: &str = "meta.k8s.io/v1";

impl ContinueToken {
    pub fn encode(&self) -> String {
        let rv = self.revision.and_then(|revision| i64::try_from(revision).ok()).unwrap_or(-1);
        let wire = Wire { v: VERSION.to_owned(), rv, start: self.start_key.clone() };
        // Encoding of plain fields cannot fail.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    pub fn decode(token: &str) -> Result<Self, InvalidToken> {
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|error| {
            let at = match error {
                DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
                // Go reports the offset of the last group of four.
                DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => token.len() / 4 * 4,
            };
            InvalidToken::Undecodable(format!("illegal base64 data at input byte {at}"))
        })?;
        let wire: Wire = serde_json::from_slice(&bytes).map_err(|error| {
            InvalidToken::Undecodable(match bytes.first() {
                Some(first) if *first != b'{' => {
                    format!("invalid character {:?} looking for beginning of value", char::from(*first))
                }
                _ => error.to_string(),
            })
        })?;
        if wire.v != VERSION {
            return Err(InvalidToken::Version(wire.v));
        }
        if wire.rv == 0 {
            return Err(InvalidToken::Revision);
        }
        if wire.start.is_empty() {
            return Err(InvalidToken::EmptyKey);
        }
        // A key outside the list's prefix would read other objects.
        let relative = wire.start.strip_prefix('/').unwrap_or(&wire.start);
        if relative.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(InvalidToken::OutsideList(wire.start));
        }
        Ok(Self { revision: u64::try_from(wire.rv).ok(), start_key: wire.start })
    }
}

impl From<InvalidToken> for crate::status::Status {
    fn from(error: InvalidToken) -> Self {
        Self::bad_request(format!("invalid continue token: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_tokens_round_trip() {
        for revision in [Some(7), None] {
            let token = ContinueToken { revision, start_key: "ns/name\0".to_owned() };
            assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        }
        let token = ContinueToken { revision: Some(5), start_key: "a\0".to_owned() };
        assert_eq!(
            URL_SAFE_NO_PAD.decode(token.encode()).unwrap(),
            br#"{"v":"meta.k8s.io/v1","rv":5,"start":"a\u0000"}"#
        );
    }

    #[test]
    fn invalid_continue_tokens_are_refused() {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for (token, part) in [
            ("%%".to_owned(), "continue key is not valid"),
            (encode("{}"), "continue key is not valid"),
            (encode(r#"{"v":"x","rv":1,"start":"a"}"#), "does not recognize"),
            (
                encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
                "incorrect encoded start resourceVersion",
            ),
            (encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#), "start key empty"),
            (encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../a"}"#), "continue key is not valid: ../a"),
        ] {
            let status = crate::status::Status::from(ContinueToken::decode(&token).unwrap_err());
            assert!(status.message.contains(part), "{}", status.message);
            assert!(status.message.starts_with("invalid continue token: "));
        }
    }
}
