//! Authorization by webhooks, and the file that configures a chain of authorizers.
//!
//! - [`configuration`]: AuthorizationConfiguration, decoded strictly and validated;
//! - [`match_conditions`]: CEL expressions that select the requests a webhook is asked about;
//! - [`review`]: SubjectAccessReviews that are sent to webhooks;
//! - [`decision_metrics`]: counts of decisions by authorizer;
//! - [`webhook`]: the authorizer that sends them, with a cache.

pub mod configuration;
pub mod decision_metrics;
pub mod match_conditions;
mod response_cache;
pub mod review;
pub mod webhook;

pub use configuration::{
    AuthorizationConfiguration, AuthorizerConfiguration, FailurePolicy, WebhookConfiguration,
};
pub use decision_metrics::DecisionMetrics;
pub use webhook::WebhookAuthorizer;
