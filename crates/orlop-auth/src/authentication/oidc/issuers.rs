//! Authentication of tokens by the issuers of a configuration.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use orlop_api::field_error::{FieldError, FieldPath};

use super::{
    claims,
    config::{AuthenticationConfiguration, JwtConfiguration},
    distributed::ClaimResolver,
    provider::Provider,
    validation::{Compiled, compile, validate},
    verification::Verification,
};
use crate::{
    authenticator::{Authenticated, AuthenticationError, Outcome, TokenAuthenticator},
    jose::{Algorithm, Token},
    time::{Clock, system_clock},
};

/// Pause between attempts to discover an issuer.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);
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
    verification: Verification,
    /// Fetches groups that are elsewhere.
    resolver: Option<ClaimResolver>,
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
                verification: Verification {
                    audiences: jwt.issuer.audiences.clone(),
                    algorithms: algorithms.to_vec(),
                    clock: clock.unwrap_or(system_clock),
                },
                resolver: Some(jwt.claim_mappings.groups.claim.clone())
                    .filter(|claim| !claim.is_empty())
                    .map(|claim| ClaimResolver::new(claim, &jwt.issuer)),
                configuration: jwt.clone(),
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
        let expires = self.verification.check(&token).map_err(failed)?;
        self.provider.verify(&token).await.map_err(failed)?;
        let mut claims = token.into_claims();
        if let Some(resolver) = &self.resolver {
            let expanded = resolver.expand(&mut claims, &self.provider, &self.verification).await;
            expanded.map_err(|why| format!("oidc: could not expand distributed claims: {why}"))?;
        }
        let user = claims::user(&self.configuration, &self.compiled, claims)?;
        Ok(Authenticated { expires: Some(expires), ..Authenticated::user(user) })
    }
}
