//! Checks of a token's audiences, times and algorithm.

use crate::{
    jose::{Algorithm, Token, seconds},
    time::Clock,
};

/// Seconds by which a token's `nbf` may be in the future.
const NOT_BEFORE_LEEWAY_SECONDS: i64 = 60;

/// Requirements on tokens besides their signature.
#[derive(Debug)]
pub(super) struct Verification {
    pub(super) audiences: Vec<String>,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) clock: Clock,
}

impl Verification {
    /// Checks audiences, times and algorithm. Returns when the token expires.
    pub(super) fn check(&self, token: &Token<'_>) -> Result<i64, String> {
        let (accepted, audiences) = (&self.audiences, token.audiences());
        if !audiences.iter().any(|audience| accepted.contains(audience)) {
            return Err(match accepted.as_slice() {
                [one] => format!("oidc: expected audience {one:?} got {audiences:?}"),
                many => format!("oidc: expected audience in {many:?} got {audiences:?}"),
            });
        }
        let now = (self.clock)();
        let malformed = |why: String| format!("oidc: failed to unmarshal claims: {why}");
        let expires = seconds(token.claims(), "exp").map_err(malformed)?.unwrap_or(0);
        if expires < now {
            return Err(format!("oidc: token is expired (Token Expiry: {expires})"));
        }
        let not_before = seconds(token.claims(), "nbf").map_err(malformed)?;
        if let Some(not_before) = not_before.filter(|from| now + NOT_BEFORE_LEEWAY_SECONDS < *from) {
            return Err(format!("oidc: current time {now} before the nbf (not before) time: {not_before}"));
        }
        if !token.algorithm().is_some_and(|algorithm| self.algorithms.contains(&algorithm)) {
            let expected: Vec<&str> = self.algorithms.iter().map(|algorithm| algorithm.name()).collect();
            return Err(format!(
                "oidc: id token signed with unsupported algorithm, expected {expected:?} got {:?}",
                token.algorithm_name()
            ));
        }
        Ok(expires)
    }
}
