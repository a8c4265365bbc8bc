//! Access: what `orlop-auth` has, and the part that knows the store, which is a cluster's identity and its service
//! accounts.

mod controllers;
pub mod identity;
pub(crate) mod lookup;

pub use controllers::{controller_manager_user, controller_user};
pub use orlop_auth::{
    Authenticated, AuthenticationError, Authorizer, Decision, Evaluation, TokenAuthenticator, TokenDigest,
    TokenFileError, Tokens, UnionAuthenticator, UnionAuthorizer, User, authentication, authentication_info,
    authenticator, authorization, authorizer, certificate_request, files, issuer, jose, kubeconfig, pki,
    signers, tokens, webhook,
};

use orlop_auth::authentication::RequestAuthenticator;

/// The authenticators and authorizers of a server.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Authenticates requests.
    pub authenticator: RequestAuthenticator,
    /// Authorizers, as a union.
    pub authorizer: UnionAuthorizer,
}
