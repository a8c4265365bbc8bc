//! Authentication: credentials to users. Authenticators compose as a union.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use http::HeaderMap;
use orlop_api::{status::Status, user::UserInfo};

use crate::Tokens;

/// Credentials of a request, besides the certificate of its connection.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// Bearer token.
    pub token: Option<&'a str>,
    /// Headers, for authenticators that trust a front proxy.
    pub headers: &'a HeaderMap,
    /// Audiences of which a token must have one; empty to accept any.
    pub audiences: &'a [String],
}

/// A user and the audiences that the credential is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The user.
    pub user: Arc<UserInfo>,
    /// The intersection of the credential's audiences and those that were accepted; empty if the credential
    /// has none.
    pub audiences: Vec<String>,
}

/// A credential that belongs to an authenticator and is not valid.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// The token is expired, revoked, or for another audience.
    #[error("{0}")]
    Invalid(String),
    /// The token could not be checked.
    #[error("cannot check the token: {}", .0.message)]
    Unavailable(Status),
}

impl From<AuthenticationError> for Status {
    /// Unauthorized, without a reason: it would help to guess tokens.
    fn from(error: AuthenticationError) -> Self {
        match error {
            AuthenticationError::Invalid(why) => {
                tracing::debug!(why, "invalid credentials");
                Self::unauthorized()
            }
            AuthenticationError::Unavailable(status) => status,
        }
    }
}

/// Authenticates credentials of one sort.
#[async_trait]
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Returns the user; `None` if the credentials are not of this authenticator's sort.
    async fn authenticate(
        &self,
        credentials: &Credentials<'_>,
    ) -> Result<Option<Authenticated>, AuthenticationError>;
}

/// Tries static tokens, then each authenticator in order. The first that returns a user wins.
#[derive(Clone, Debug, Default)]
pub struct UnionAuthenticator {
    tokens: Tokens,
    authenticators: Vec<Arc<dyn Authenticator>>,
}

impl UnionAuthenticator {
    /// Returns a union of static tokens and authenticators.
    pub fn new(tokens: Tokens, authenticators: Vec<Arc<dyn Authenticator>>) -> Self {
        Self { tokens, authenticators }
    }

    /// Returns the user of credentials. `None` if no authenticator recognizes them; the last error if one does.
    pub async fn authenticate(
        &self,
        credentials: &Credentials<'_>,
    ) -> Result<Option<Authenticated>, AuthenticationError> {
        // Static tokens have no audiences, and are good for the API server's own.
        if let Some(user) = credentials.token.and_then(|token| self.tokens.user(token)) {
            return Ok(Some(Authenticated { user: Arc::new(user), audiences: Vec::new() }));
        }
        let mut failure = None;
        for authenticator in &self.authenticators {
            match authenticator.authenticate(credentials).await {
                Ok(Some(authenticated)) => return Ok(Some(authenticated)),
                Ok(None) => {}
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(None), Err)
    }
}
