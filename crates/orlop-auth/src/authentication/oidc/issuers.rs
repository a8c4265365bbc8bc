//! Authentication of tokens by the issuers of a configuration.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use orlop_api::field_error::{FieldError, FieldPath};

use super::{
    claims,
    config::{AuthenticationConfiguration, JwtConfiguration},
    provider::Provider,
    validation::{Compiled, compile, validate},
};
use crate::{
    authenticator::{Authenticated, AuthenticationError, Outcome, TokenAuthenticator},
    jose::{Algorithm, Token, seconds},
    time::{Clock, system_clock},
};

/// Pause between attempts to discover an issuer.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);
/// Seconds by which a token's `nbf` may be in the future.
const NOT_BEFORE_LEEWAY_SECONDS: i64 = 60;
/// An alias of Google's issuer in tokens.
const GOOGLE: (&str, &str) = ("accounts.google.com", "https://accounts.google.com");

/// Authenticates tokens of several issuers.
#[derive(Debug)]
pub struct JwtIssuers {
    issuers: Vec<Arc<JwtIssuer>>,
    /// Ends discovery with this value.
    _discovery: Vec<AbortOnDrop>,
}

/// Authenticates tokens of one issuer.
#[derive(Debug)]
struct JwtIssuer {
    configuration: JwtConfiguration,
    compiled: Compiled,
    provider: Provider,
    algorithms: Vec<Algorithm>,
    clock: Clock,
}

#[derive(Debug)]
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl JwtIssuers {
    /// Returns an authenticator of a valid configuration, and begins to discover its issuers. To be called in a
    /// runtime.
    pub fn start(
        configuration: &AuthenticationConfiguration,
        disallowed_issuers: &[String],
        algorithms: &[Algorithm],
        clock: Option<Clock>,
    ) -> Result<Self, Vec<FieldError>> {
        let errors = validate(configuration, disallowed_issuers);
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut issuers = Vec::new();
        for (index, jwt) in configuration.jwt.iter().enumerate() {
            let path = FieldPath::root("jwt").index(index);
            issuers.push(Arc::new(JwtIssuer {
                compiled: compile(jwt, &path, disallowed_issuers)?,
                provider: Provider::new(&jwt.issuer),
                configuration: jwt.clone(),
                algorithms: algorithms.to_vec(),
                clock: clock.unwrap_or(system_clock),
            }));
        }
        let discover = |issuer: &Arc<JwtIssuer>| AbortOnDrop(tokio::spawn(discover(issuer.clone())));
        let discovery = issuers.iter().map(discover).collect();
        Ok(Self { issuers, _discovery: discovery })
    }

    /// Returns once all issuers are discovered.
    pub async fn ready(&self) {
        while !self.issuers.iter().all(|issuer| issuer.provider.is_initialized()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn discover(issuer: Arc<JwtIssuer>) {
    while let Err(why) = issuer.provider.discover().await {
        tracing::error!(issuer = issuer.configuration.issuer.url, why, "cannot discover an issuer of tokens");
        tokio::time::sleep(DISCOVERY_INTERVAL).await;
    }
}

#[async_trait]
impl TokenAuthenticator for JwtIssuers {
    async fn authenticate(&self, token: &str, _audiences: &[String]) -> Outcome {
        let Some(token) = Token::parse(token) else { return Ok(None) };
        let named = if token.issuer() == GOOGLE.0 { GOOGLE.1 } else { token.issuer() };
        let issuer = self.issuers.iter().find(|issuer| issuer.configuration.issuer.url == named);
        match issuer {
            Some(issuer) => issuer.authenticate(token).await.map(Some).map_err(AuthenticationError::Invalid),
            None => Ok(None),
        }
    }
}

impl JwtIssuer {
    async fn authenticate(&self, token: Token<'_>) -> Result<Authenticated, String> {
        if !self.provider.is_initialized() {
            return Err("oidc: authenticator not initialized".to_owned());
        }
        let failed = |why: String| format!("oidc: verify token: {why}");
        let expires = self.check(&token).map_err(failed)?;
        self.provider.verify(&token).await.map_err(failed)?;
        let user = claims::user(&self.configuration, &self.compiled, token.into_claims())?;
        Ok(Authenticated { expires: Some(expires), ..Authenticated::user(user) })
    }

    /// Checks audiences, times and algorithm. Returns when the token expires.
    fn check(&self, token: &Token<'_>) -> Result<i64, String> {
        let (accepted, audiences) = (&self.configuration.issuer.audiences, token.audiences());
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
