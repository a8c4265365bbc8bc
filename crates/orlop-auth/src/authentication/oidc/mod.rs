//! JSON Web Tokens of OpenID Connect issuers, as `AuthenticationConfiguration` or the `--oidc-*` options describe them.
//!
//! An issuer is discovered in the background, and again every ten seconds until that succeeds; tokens are refused until
//! then. Its keys are fetched when a token has an unknown key, at most once a second. Redirects are not followed.

mod claims;
mod config;
mod distributed;
mod expressions;
mod issuers;
mod provider;
mod reload;
mod validation;
mod verification;

pub use config::{
    AnonymousConfiguration, AuthenticationConfiguration, ClaimMappings, ClaimOrExpression,
    ClaimValidationRule, ExtraMapping, IssuerConfiguration, JwtConfiguration, PathCondition,
    PrefixedClaimOrExpression, UserValidationRule,
};
pub use issuers::JwtIssuers;
pub use reload::{ConfigurationFile, ReloadCounts};
pub use validation::validate;
