//! Unsafe deletion of an object that cannot be read, such as one whose encryption key is lost. Finalizers,
//! preconditions and admission do not count: all of them need the object.

use http::Response;
use orlop_api::status::Status;
use orlop_store::{Delete, Error, KeyRange, Op, Read, Select, Txn};

use super::Request;
use crate::{
    auth::Decision,
    http::{body::Body, response},
    request::{Attributes, Verb},
    storage::status_from_store_error,
};

const VERB: &str = "unsafe-delete-ignore-read-errors";

/// Deletes the object, unless it can be read.
pub(super) async fn delete(request: &Request, dry_run: bool) -> Result<Response<Body>, Status> {
    if let Some(audit) = &request.audit {
        audit.annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error", "");
    }
    authorize(request).await?;
    let (kind, attributes, objects) = (&request.kind, &request.attributes, &request.cluster.objects);
    let (resource, name) = (kind.group_resource(), attributes.name.as_str());
    let range = KeyRange::key(objects.key(kind, &attributes.namespace, name));
    let refused = |error: &Error| status_from_store_error(error);
    match objects.store.read(Read::new(range.clone())).await {
        Err(Error::Corrupt { .. } | Error::Transform { .. }) => {}
        Err(error) => return Err(refused(&error)),
        Ok(read) if read.kvs.is_empty() => return Err(Status::not_found(&resource, name)),
        Ok(_) => {
            let why = "unsafe deletion is not allowed because the object is decodable from storage";
            return Err(Status::conflict(&resource, name, why));
        }
    }
    let key_only = Read { select: Select::Keys, ..Read::new(range.clone()) };
    let found = objects.store.read(key_only).await.map_err(|error| refused(&error))?;
    let Some(found) = found.kvs.first() else { return Err(Status::not_found(&resource, name)) };
    if !dry_run {
        let mut txn = Txn::remove(found.key.clone(), found.revision);
        // Neither the removed value nor one that has taken its place is read.
        txn.then = vec![Op::Delete(Delete { range, previous: false })];
        txn.otherwise.clear();
        if !request.cluster.commit(kind, txn).await?.succeeded {
            return Err(Status::conflict_modified(&resource, name));
        }
    }
    let encoding = request.negotiated.encoding;
    let status = Status::deleted(&resource, name, "");
    Ok(response::bytes(200, encoding.media_type(), response::encode(encoding, &status)))
}

/// Requires the permission for unsafe deletion besides that for deletion.
async fn authorize(request: &Request) -> Result<(), Status> {
    let attributes =
        Attributes { verb: Verb::from(VERB), ..request.attributes.for_authorizers().into_owned() };
    match request.cluster.authorizer().authorize(&attributes).await {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => {
            let why = format!("not permitted to do {VERB:?}, reason: {reason}");
            Err(Status::forbidden(&request.kind.group_resource(), &request.attributes.name, &why))
        }
    }
}
