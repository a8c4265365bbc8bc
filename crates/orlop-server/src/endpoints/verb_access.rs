//! Requests that need another verb beside their own: an update or an apply that creates its object, and a GET that
//! connects to a pod.

use orlop_api::status::Status;

use super::Request;
use crate::{
    auth::{Decision, Evaluation, authorizer::forbidden},
    request::{Attributes, Subresource, Verb},
};

/// Returns Forbidden if an update or an apply creates an object that its user may not create.
pub(super) async fn check_create(request: &Request) -> Result<(), Status> {
    // A create is authorized as such. Without a name it is of another object, such as the namespace.
    if !matches!(request.attributes.verb, Verb::Update | Verb::Patch) || request.attributes.name.is_empty() {
        return Ok(());
    }
    let attributes = as_create(request);
    refused(request, &attributes).await?.map_or(Ok(()), |reason| Err(forbidden(&attributes, &reason)))
}

/// Returns Forbidden if a WebSocket, whose request is always a GET, connects to a pod whose user could not do so by POST:
/// reading a pod's subresources is no permission to run commands in it.
pub(super) async fn check_connect(request: &Request) -> Result<(), Status> {
    let subresource = &request.attributes.subresource;
    let runs =
        matches!(subresource, Some(Subresource::Exec | Subresource::Attach | Subresource::PortForward));
    if !runs || request.attributes.verb == Verb::Create {
        return Ok(());
    }
    let reason = refused(request, &as_create(request)).await?;
    let (resource, name) = (request.kind.group_resource(), &request.attributes.name);
    reason.map_or(Ok(()), |reason| Err(Status::forbidden(&resource, name, &reason)))
}

fn as_create(request: &Request) -> Attributes {
    Attributes { verb: Verb::Create, ..request.attributes.for_authorizers().into_owned() }
}

/// Returns the reason if a request with these attributes is not allowed.
async fn refused(request: &Request, attributes: &Attributes) -> Result<Option<String>, Status> {
    let evaluation: Evaluation = request.cluster.authorizer().evaluate(attributes).await;
    match (&evaluation.decision, evaluation.error()) {
        (Decision::Allow(_), _) => Ok(None),
        (_, Some(error)) => Err(Status::internal(&error)),
        (Decision::Deny(reason) | Decision::NoOpinion(reason), None) => Ok(Some(reason.to_string())),
    }
}
