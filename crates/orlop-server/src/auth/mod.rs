//! Credentials and who they belong to: certificates, static tokens, service account tokens.

pub(crate) mod authorization;
pub mod identity;
pub mod issuer;
pub mod kubeconfig;
pub mod pki;
pub(crate) mod service_account;
pub mod tokens;

pub use orlop_api::user::UserInfo as User;
pub use tokens::{BadLine, TokenDigest, Tokens};
