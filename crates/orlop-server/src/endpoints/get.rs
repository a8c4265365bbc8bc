//! Get: one object.

use http::Response;
use orlop_api::status::Status;

use super::{Request, answer, unreadable};
use crate::{http::body::Body, request::resource_version};

pub(super) async fn get(request: &Request) -> Result<Response<Body>, Status> {
    if request.query.get("export").is_some() {
        return Err(Status::bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported",
        ));
    }
    if let Some(revision) = resource_version::parse(request.query.text("resourceVersion"))? {
        request.cluster.objects.not_older_than(revision).await?;
    }
    let attributes = &request.attributes;
    let found = request.cluster.objects.get(&request.kind, &attributes.namespace, &attributes.name).await?;
    answer::stored_object(request, 200, &found).await.map_err(unreadable::of_object)
}
