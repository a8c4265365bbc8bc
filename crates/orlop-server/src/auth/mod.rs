//! Credentials and permissions: certificates, static tokens, service account tokens; the interfaces of
//! authenticators and authorizers.

pub mod authenticator;
pub mod authorizer;
pub mod identity;
pub mod issuer;
pub mod kubeconfig;
pub mod pki;
pub(crate) mod service_account;
pub mod tokens;

pub use authenticator::{Authenticated, AuthenticationError, Authenticator, Credentials, UnionAuthenticator};
pub use authorizer::{Authorizer, Decision, UnionAuthorizer};
pub use orlop_api::user::UserInfo as User;
pub use tokens::{BadLine, TokenDigest, Tokens};

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
