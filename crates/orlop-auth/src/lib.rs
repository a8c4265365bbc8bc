//! Access: who makes a request, and may they make it.
//!
//! Modules form layers; each imports only those above it in this list:
//!
//! ```text
//! request                      attributes of requests: user, verb, resource
//! files                        files that are followed
//! jose                         signed JSON Web Tokens and their keys
//! tokens, issuer, pki          static tokens, service account tokens, certificates
//! kubeconfig                   client configuration
//! webhook                      clients of webhooks and issuers
//! authenticator, authorizer    the interfaces, and their unions
//! rbac, node                   authorizers over roles and bindings, and over what is on a node
//! authorization                webhooks, and the configuration of a chain of authorizers
//! ```
//!
//! Nothing here knows the store: what needs objects takes a lookup.

pub mod authenticator;
pub mod authorization;
pub mod authorizer;
pub mod files;
pub mod issuer;
pub mod jose;
pub mod kubeconfig;
pub mod node;
pub mod pki;
pub mod rbac;
pub mod request;
pub mod tokens;
pub mod webhook;

pub use authenticator::{Authenticated, AuthenticationError, Authenticator, Credentials, UnionAuthenticator};
pub use authorizer::{Authorizer, Decision, Evaluation, UnionAuthorizer};
pub use orlop_api::user::UserInfo as User;
pub use tokens::{BadLine, TokenDigest, Tokens};
