//! Update: read, modify, compare-and-swap.
//!
//! PUT and every patch type share the loop: `modify` turns the stored object into the desired one. It is called
//! again after a lost race, unless the client named a resourceVersion (optimistic locking).

use http::Response;
use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupKind,
    object_meta,
    status::Status,
};
use orlop_store::{Put, Revision, Txn};
use serde_json::Value;

use super::{
    Request, admission, create::create_object, decoder, device_access, escalation, isolation, offload,
    parameter_access, preconditions::Preconditions, prepare, quota, removal, signer_access, written::Written,
};
use crate::{
    http::body::Body, object::metadata_mut, registry::Found, request::options::WriteOptions,
    storage::Contribution,
};

/// Attempts at a compare-and-swap without a resourceVersion.
const ATTEMPTS: usize = 64;

/// Replaces an object, or creates it where the kind allows that.
pub(super) async fn replace(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "UpdateOptions")?;
    let wanted = decoder::object(request, options.field_validation)?;
    check_name(request, &wanted)?;
    let manager = options.manager(request.user_agent());
    let creates = request.kind.flags.allow_create_on_update && request.attributes.subresource.is_none();
    if creates {
        let attributes = &request.attributes;
        if request
            .cluster
            .objects
            .find(&request.kind, &attributes.namespace, &attributes.name)
            .await?
            .is_none()
        {
            let mut wanted = wanted;
            check_uid(request, &wanted, &Value::Null)?;
            metadata_mut(&mut wanted).insert("name".into(), attributes.name.clone().into());
            let (code, written) = create_object(request, wanted, &options, Some(&manager)).await?;
            return written.answer(request, code).await;
        }
    }
    let written = write(request, options.dry_run, |old| {
        let mut object = wanted.clone();
        check_uid(request, &object, old)?;
        require_version(request, &object)?;
        prepare::set_namespace(request, &mut object)?;
        complete(request, old, object, Some(&manager))
    })
    .await?;
    written.answer(request, 200).await
}

/// Checks that an object has the name in the path.
pub(crate) fn check_name(request: &Request, object: &Value) -> Result<(), Status> {
    let given = object_meta::text(object_meta::of(object), "name");
    if given.is_empty() {
        return Err(Status::name_undeterminable(&request.attributes.name));
    }
    if given != request.attributes.name {
        return Err(Status::name_mismatch(given, &request.attributes.name));
    }
    Ok(())
}

/// Writes a change of a client: `modify` returns the desired object, then admission and the strategy apply.
pub(crate) async fn write(
    request: &Request,
    dry_run: bool,
    modify: impl Fn(&Value) -> Result<Value, Status>,
) -> Result<Written, Status> {
    compare_and_swap(request, dry_run, modify, Writer::Client).await
}

/// Writes a change of the server itself: `modify` returns what is stored, without admission or strategy.
pub(crate) async fn change(
    request: &Request,
    dry_run: bool,
    modify: impl Fn(&Value) -> Result<Value, Status>,
) -> Result<Written, Status> {
    compare_and_swap(request, dry_run, modify, Writer::Server).await
}

/// The author of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Client,
    Server,
}

async fn compare_and_swap(
    request: &Request,
    dry_run: bool,
    modify: impl Fn(&Value) -> Result<Value, Status>,
    writer: Writer,
) -> Result<Written, Status> {
    let (kind, attributes, cluster) = (&request.kind, &request.attributes, &request.cluster);
    for _ in 0..ATTEMPTS {
        let found = cluster.objects.get(kind, &attributes.namespace, &attributes.name).await?;
        let old = kind.read(&found).await?;
        // A small patch of a large object is as much work as a large patch.
        let mut object = offload::block_for(found.bytes.len(), || modify(&old)).await?;
        if writer == Writer::Client {
            admission::mutate(request, &mut object, Some(&old)).await?;
            escalation::check(request, &object, Some(&old)).await?;
            isolation::isolate(request, &mut object, &old);
            kind.strategy.prepare_for_update(&mut object, &old, &request.context());
            if attributes.subresource.is_some() {
                kind.strategy.prepare_for_subresource_update(
                    attributes.subresource_name(),
                    &mut object,
                    &old,
                    &request.context(),
                );
            }
            if kind.flags.tracks_generation {
                object_meta::bump_generation(&mut object, &old, kind.has_status());
            }
        }
        let has_version = check_version(request, &object, &found)?;
        metadata_mut(&mut object).insert("resourceVersion".into(), found.revision.to_string().into());
        let mut contribution = Preconditions::evaluate(request, &mut object, Some(&old)).await?.contribution;
        let mut errors = match writer {
            Writer::Client => device_access::check(request, &object, Some(&old)).await?,
            Writer::Server => Vec::new(),
        };
        errors.extend(validate(request, &object, &old));
        prepare::refuse_invalid(kind, &object, &errors)?;
        if writer == Writer::Client {
            parameter_access::check(request, &object, Some(&old)).await?;
            signer_access::check(request, &object, &old).await?;
        }
        // Writes of a subresource are not warned of.
        if request.attributes.subresource.is_none() {
            let warnings = kind.strategy.warnings_on_update(&object, &old);
            warnings.into_iter().for_each(|warning| request.warn(warning));
        }
        if writer == Writer::Client {
            admission::validate(request, &object, Some(&old)).await?;
        }
        let charge = match writer {
            Writer::Client => quota::charge(request, &object, Some(&old)).await?,
            Writer::Server => quota::Charge::default(),
        };
        contribution.merge(charge.contribution);
        if removal::is_released(kind, &object) {
            if dry_run {
                return Ok(Written::Object(object));
            }
            if let Some(removed) = removal::remove(request, &object, &found).await? {
                return Ok(removed);
            }
        } else {
            // An object in an older storage version or under an older key is written again: that is how storage is
            // migrated.
            let is_current = kind.storage.is_current(&found.bytes) && !found.stale;
            if object_meta::is_no_op(&object, &old) && is_current {
                return Ok(Written::Stored(found));
            }
            if dry_run {
                return Ok(Written::Object(kind.as_read(object).await?));
            }
            if let Some(written) = swap(request, &mut object, &found, contribution).await? {
                return Ok(written);
            }
        }
        // The server's own change is of what is stored, whatever version that is: it is made again.
        if has_version && writer == Writer::Client {
            return Err(Status::conflict_modified(&kind.group_resource(), &attributes.name));
        }
    }
    Err(Status::server_timeout(&kind.group_resource(), "update", 1))
}

/// Completes an object that a client wants: carries over system fields, applies defaults, records managed fields.
pub(crate) fn complete(
    request: &Request,
    old: &Value,
    mut object: Value,
    manager: Option<&str>,
) -> Result<Value, Status> {
    let kind = &request.kind;
    object_meta::carry_over(&mut object, old);
    prepare::deduplicate_owners(request, &mut object, "");
    kind.set_defaults(&mut object);
    if let Some(manager) = manager {
        object = prepare::record_managed_fields(request, old, object, manager);
    }
    Ok(object)
}

/// Checks the uid of a replacement, if it has one. (In a patch, another uid is an invalid change of an immutable
/// field, not a conflict: controllers distinguish the two.)
pub(crate) fn check_uid(request: &Request, object: &Value, old: &Value) -> Result<(), Status> {
    let (given, stored) =
        (object_meta::text(object_meta::of(object), "uid"), object_meta::text(object_meta::of(old), "uid"));
    if !given.is_empty() && given != stored {
        let resource = request.kind.group_resource();
        return Err(Status::conflict_precondition(&resource, &request.attributes.name, "UID", given, stored));
    }
    Ok(())
}

/// Requires a resourceVersion, unless the kind allows unconditional updates.
pub(super) fn require_version(request: &Request, object: &Value) -> Result<(), Status> {
    let is_given = object_meta::has_resource_version(object_meta::of(object));
    if request.kind.flags.allow_unconditional_update || is_given {
        return Ok(());
    }
    let path = FieldPath::root("metadata").child("resourceVersion");
    let error = FieldError::invalid(&path, 0, "must be specified for an update");
    // Kubernetes names the resource here, where all other refusals name the kind.
    let resource = GroupKind::new(request.kind.gvk.group.clone(), request.kind.resource.clone());
    Err(Status::invalid(&resource, &request.attributes.name, &[error]))
}

/// Checks the resourceVersion of an object, and returns true if it has one.
fn check_version(request: &Request, object: &Value, found: &Found) -> Result<bool, Status> {
    let meta = object_meta::of(object);
    if !object_meta::has_resource_version(meta) {
        return Ok(false);
    }
    let given = object_meta::text(meta, "resourceVersion");
    match given.parse::<Revision>() {
        Ok(revision) if revision == found.revision => Ok(true),
        Ok(_) => Err(Status::conflict_modified(&request.kind.group_resource(), &request.attributes.name)),
        Err(_) => {
            let path = FieldPath::root("metadata").child("resourceVersion");
            let error = FieldError::invalid(&path, given, "must be an unsigned integer");
            Err(Status::invalid(&request.kind.group_kind(), &request.attributes.name, &[error]))
        }
    }
}

fn validate(request: &Request, object: &Value, old: &Value) -> Vec<FieldError> {
    let metadata = FieldPath::root("metadata");
    let mut errors = object_meta::validate_update(object_meta::of(object), object_meta::of(old), &metadata);
    errors.extend(prepare::validate_metadata(&request.kind, object));
    errors.extend(request.kind.strategy.validate_replacement(
        object,
        old,
        request.attributes.subresource_name(),
    ));
    errors
}

/// Writes an object if the stored one is still that which was read; `None` if not.
pub(super) async fn swap(
    request: &Request,
    object: &mut Value,
    found: &Found,
    contribution: Contribution,
) -> Result<Option<Written>, Status> {
    let (kind, cluster) = (&request.kind, &request.cluster);
    let meta = object_meta::of(object);
    let key =
        cluster.objects.key(kind, object_meta::text(meta, "namespace"), object_meta::text(meta, "name"));
    let encoded = prepare::encode(request, object).await?;
    let put = Put::new(key, encoded.bytes.clone());
    let put = Put { terms: encoded.terms.clone(), keep_lease: true, ..put };
    let mut txn = Txn::replace(put, found.revision);
    txn.compares.extend(contribution.compares);
    txn.then.extend(contribution.ops);
    let result = cluster.commit(kind, txn).await?;
    Ok(result.succeeded.then(|| Written::of(kind, encoded, object, result.revision)))
}
