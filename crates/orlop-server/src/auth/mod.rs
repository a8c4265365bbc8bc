//! Access: what `orlop-auth` has, and the part that knows the store, which is a cluster's identity and its service
//! accounts.

mod controllers;
pub mod identity;
pub(crate) mod service_account;

pub use controllers::controller_user;
pub use orlop_auth::{
    Authenticated, AuthenticationError, Authenticator, Authorizer, BadLine, Credentials, Decision,
    TokenDigest, Tokens, UnionAuthenticator, UnionAuthorizer, User, authenticator, authorization, authorizer,
    files, issuer, kubeconfig, pki, tokens,
};

/// The authenticators and authorizers of a server.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Authenticators, as a union.
    pub authenticator: UnionAuthenticator,
    /// Authorizers, as a union.
    pub authorizer: UnionAuthorizer,
    /// Audiences of the API server: a service account token must be for one of them.
    pub audiences: Vec<String>,
}
