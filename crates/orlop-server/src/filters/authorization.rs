//! Authorization filter.

use orlop_api::status::Status;

use super::audit::Record;
use crate::{
    auth::{Decision, UnionAuthorizer, authorizer::forbidden},
    request::Attributes,
};

/// Returns Forbidden unless an authorizer allows the request; an internal error if one could not decide and none
/// allows it. The decision is audited.
pub(crate) async fn authorize(
    authorizer: &UnionAuthorizer,
    attributes: &Attributes,
    record: &mut Record,
) -> Result<(), Status> {
    let evaluation = authorizer.evaluate(attributes).await;
    record.authorized(&evaluation.decision);
    match &evaluation.decision {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(match evaluation.error() {
            Some(error) => Status::internal(&error),
            None => forbidden(attributes, reason),
        }),
    }
}
