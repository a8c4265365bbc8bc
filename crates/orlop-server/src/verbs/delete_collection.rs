//! Delete every object that a selector selects.

use http::Response;
use orlop_api::{object_meta, status::Status};
use serde_json::json;

use super::{
    Request, answer,
    delete::{DeleteOptions, delete_named},
    list,
};
use crate::body::Body;

pub(super) async fn delete_collection(request: &Request) -> Result<Response<Body>, Status> {
    let options = DeleteOptions::of(request)?;
    let (revision, selected) = list::select(request).await?;
    let mut items = Vec::with_capacity(selected.len());
    for object in selected {
        let meta = object_meta::of(&object);
        let (namespace, name) = (object_meta::text(meta, "namespace"), object_meta::text(meta, "name"));
        match delete_named(request, &options, namespace, name).await {
            Ok(_) => items.push(object),
            // Somebody else was faster.
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    let list = json!({
        "kind": request.kind.list_kind, "apiVersion": request.kind.gvk.api_version(),
        "metadata": {"resourceVersion": revision.to_string()}, "items": items,
    });
    let encoding = request.negotiated.encoding;
    Ok(answer::bytes(200, encoding.media_type(), answer::encode(encoding, &list)))
}
