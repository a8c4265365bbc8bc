//! Authorization filter.

use orlop_api::status::Status;

use super::audit::Record;
use crate::{
    auth::{Decision, UnionAuthorizer, authorizer::forbidden},
    request::{Attributes, Verb},
};

/// Returns Forbidden unless an authorizer allows the request; an internal error if one could not decide and none
/// allows it. The decision is audited.
pub(crate) async fn authorize(
    authorizer: &UnionAuthorizer,
    attributes: &Attributes,
    record: &mut Record,
) -> Result<(), Status> {
    let mut evaluation = authorizer.evaluate(attributes).await;
    let is_head = !attributes.is_resource_request && attributes.verb.as_str() == "head";
    if is_head && !matches!(evaluation.decision, Decision::Allow(_)) {
        // Whoever may read a path may ask for its headers: load balancers check health so.
        let get = Attributes { verb: Verb::Get, ..attributes.clone() };
        let as_get = authorizer.evaluate(&get).await;
        if matches!(as_get.decision, Decision::Allow(_)) {
            evaluation = as_get;
        }
    }
    record.authorized(&evaluation.decision);
    match &evaluation.decision {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(match evaluation.error() {
            Some(error) => Status::internal(&error),
            None => forbidden(attributes, reason),
        }),
    }
}
