//! Access: who makes a request, and may they make it.
//!
//! Modules form layers; each imports only those above it in this list:
//!
//! ```text
//! request, headers, time       attributes of requests: user, verb, resource; identities in headers; the clock
//! domain_path, encoding        keys of users' extra fields; DER and PEM
//! files                        files that are followed
//! jose                         signed JSON Web Tokens and their keys
//! lookup                       objects that credentials depend on
//! authenticator, authorizer    the interfaces, and their unions
//! tokens, issuer               static tokens, service account tokens
//! certificate_request          signing of requests
//! pki, signers                 the cluster's CA and what it issues; what Kubernetes' signers sign
//! kubeconfig                   client configuration
//! webhook                      clients of webhooks and issuers
//! rbac, node                   authorizers over roles and bindings, and over what is on a node
//! authorization                webhooks, and the configuration of a chain of authorizers
//! authentication               authenticators, a file each, and the one of requests
//! authentication_info          what extension API servers need to authenticate requests
//! ```
//!
//! Nothing here knows the store: what needs objects takes a lookup.

pub mod authentication;
pub mod authentication_info;
pub mod authenticator;
pub mod authorization;
pub mod authorizer;
pub mod certificate_request;
pub mod domain_path;
mod encoding;
pub mod files;
pub mod headers;
pub mod issuer;
pub mod jose;
pub mod kubeconfig;
pub mod lookup;
pub mod node;
pub mod pki;
pub mod rbac;
pub mod request;
pub mod signers;
pub mod time;
pub mod tokens;
pub mod webhook;

pub use authenticator::{
    Authenticated, AuthenticationError, Outcome, TokenAuthenticator, UnionAuthenticator,
};
pub use authorizer::{Authorizer, Decision, Evaluation, UnionAuthorizer};
pub use orlop_api::user::UserInfo as User;
pub use tokens::{TokenDigest, TokenFileError, Tokens};
