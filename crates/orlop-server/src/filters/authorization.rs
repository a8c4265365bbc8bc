//! Authorization filter.

use orlop_api::status::Status;

use super::audit::Record;
use crate::{
    auth::{Decision, UnionAuthorizer, authorizer::forbidden},
    request::Attributes,
};

/// Returns Forbidden unless an authorizer allows the request. The decision is audited.
pub(crate) async fn authorize(
    authorizer: &UnionAuthorizer,
    attributes: &Attributes,
    record: &mut Record,
) -> Result<(), Status> {
    let decision = authorizer.authorize(attributes).await;
    record.authorized(&decision);
    match decision {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(forbidden(attributes, &reason)),
    }
}
