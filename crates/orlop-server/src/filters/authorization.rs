//! Authorization filter.

use orlop_api::status::Status;

use crate::{
    auth::{Decision, UnionAuthorizer, authorizer::forbidden},
    request::Attributes,
};

/// Returns Forbidden unless an authorizer allows the request.
pub(crate) async fn authorize(authorizer: &UnionAuthorizer, attributes: &Attributes) -> Result<(), Status> {
    match authorizer.authorize(attributes).await {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(forbidden(attributes, &reason)),
    }
}
