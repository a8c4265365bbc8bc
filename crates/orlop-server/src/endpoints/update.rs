//! Update: read, change, compare and swap.
//!
//! PUT and every kind of patch share the loop: `make` turns the stored object into the wanted one, and is
//! called again when another writer was faster, unless the client said which version it changed.

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
    Request, admission, create::create_object, decoder, delete, isolation, preconditions::Preconditions,
    prepare, written::Written,
};
use crate::object::metadata_mut;
use crate::{http::body::Body, registry::Found, request::options::WriteOptions, storage::Contribution};

/// How often a change without a version is tried again.
const TRIES: usize = 64;

/// PUT.
pub(super) async fn replace(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "UpdateOptions")?;
    let wanted = decoder::object(request, options.field_validation)?;
    check_name(request, &wanted)?;
    let manager = options.manager(request.user_agent());
    let creates = request.kind.flags.allow_create_on_update && request.about.subresource.is_empty();
    if creates {
        let about = &request.about;
        if request.cluster.objects.find(&request.kind, &about.namespace, &about.name).await?.is_none() {
            let mut wanted = wanted;
            check_uid(request, &wanted, &Value::Null)?;
            metadata_mut(&mut wanted).insert("name".into(), about.name.clone().into());
            let (code, written) = create_object(request, wanted, &options, Some(&manager)).await?;
            return written.answer(request, code).await;
        }
    }
    let written = write(request, options.dry_run, |old| {
        let mut object = wanted.clone();
        check_uid(request, &object, old)?;
        require_version(request, &object)?;
        prepare::set_namespace(request, &mut object)?;
        completed(request, old, object, Some(&manager))
    })
    .await?;
    written.answer(request, 200).await
}

/// What replaces an object says so by its name.
pub(crate) fn check_name(request: &Request, object: &Value) -> Result<(), Status> {
    let given = object_meta::text(object_meta::of(object), "name");
    if given.is_empty() {
        return Err(Status::name_undeterminable(&request.about.name));
    }
    if given != request.about.name {
        return Err(Status::name_mismatch(given, &request.about.name));
    }
    Ok(())
}

/// A change that a client asks for: `make` returns what it wants of the stored object, and then admission
/// and the kind have their say.
pub(crate) async fn write(
    request: &Request,
    dry_run: bool,
    make: impl Fn(&Value) -> Result<Value, Status>,
) -> Result<Written, Status> {
    rounds(request, dry_run, make, true).await
}

/// A change of the server's own: `make` returns what is to be stored.
pub(crate) async fn change(
    request: &Request,
    dry_run: bool,
    make: impl Fn(&Value) -> Result<Value, Status>,
) -> Result<Written, Status> {
    rounds(request, dry_run, make, false).await
}

async fn rounds(
    request: &Request,
    dry_run: bool,
    make: impl Fn(&Value) -> Result<Value, Status>,
    of_client: bool,
) -> Result<Written, Status> {
    let (kind, about, cluster) = (&request.kind, &request.about, &request.cluster);
    for _ in 0..TRIES {
        let found = cluster.objects.get(kind, &about.namespace, &about.name).await?;
        let old = kind.read(&found).await?;
        let mut object = make(&old)?;
        if of_client {
            admission::mutate(request, &mut object, Some(&old)).await?;
            isolation::isolate(request, &mut object, &old);
            kind.strategy.prepare_for_update(&mut object, &old, &request.context());
            if !about.subresource.is_empty() {
                kind.strategy.prepare_for_subresource_update(
                    &about.subresource,
                    &mut object,
                    &old,
                    &request.context(),
                );
            }
            if kind.flags.tracks_generation {
                object_meta::bump_generation(&mut object, &old, kind.has_status());
            }
        }
        let pinned = pinned_version(request, &object, &found)?;
        metadata_mut(&mut object).insert("resourceVersion".into(), found.revision.to_string().into());
        let contribution = Preconditions::evaluate(request, &mut object, Some(&old)).await?.contribution;
        let errors = validate(request, &object, &old);
        prepare::refuse_invalid(kind, &object, &errors)?;
        kind.strategy.warnings_on_update(&object, &old).into_iter().for_each(|warning| request.warn(warning));
        admission::validate(request, Some(&object), Some(&old)).await?;
        if delete::is_released(kind, &object) {
            if dry_run {
                return Ok(Written::Object(object));
            }
            if let Some(removed) = delete::remove(request, &object, &found).await? {
                return Ok(removed);
            }
        } else {
            // What is stored in an older form is written again, which is how storage is migrated.
            if object_meta::is_no_op(&object, &old) && kind.storage.is_current(&found.bytes) {
                return Ok(Written::Stored(found));
            }
            if dry_run {
                return Ok(Written::Object(object));
            }
            if let Some(written) = swap(request, &mut object, &found, contribution).await? {
                return Ok(written);
            }
        }
        if pinned {
            return Err(Status::conflict_modified(&kind.group_resource(), &about.name));
        }
    }
    Err(Status::server_timeout(&kind.group_resource(), "update", 1))
}

/// What a client wants of an object, made complete: defaults are filled in, and who owns what is written down.
pub(crate) fn completed(
    request: &Request,
    old: &Value,
    mut object: Value,
    manager: Option<&str>,
) -> Result<Value, Status> {
    let kind = &request.kind;
    object_meta::carry_over(&mut object, old);
    prepare::deduplicate_owners(request, &mut object, "");
    prepare::default(kind, &mut object);
    if let Some(manager) = manager {
        object = prepare::track(request, old, object, manager);
    }
    Ok(object)
}

/// What replaces an object names it by its uid too, if at all. (In a patch, a uid is a change that is not
/// allowed, as of any field that stays: controllers tell the two apart.)
pub(crate) fn check_uid(request: &Request, object: &Value, old: &Value) -> Result<(), Status> {
    let (given, stored) =
        (object_meta::text(object_meta::of(object), "uid"), object_meta::text(object_meta::of(old), "uid"));
    if !given.is_empty() && given != stored {
        let resource = request.kind.group_resource();
        return Err(Status::conflict_precondition(&resource, &request.about.name, "UID", given, stored));
    }
    Ok(())
}

/// A replacement of some kinds must say which version it replaces. A patch says what it changes, and need not.
pub(super) fn require_version(request: &Request, object: &Value) -> Result<(), Status> {
    let given = object_meta::text(object_meta::of(object), "resourceVersion");
    if request.kind.flags.allow_unconditional_update || !given.is_empty() {
        return Ok(());
    }
    let path = FieldPath::root("metadata").child("resourceVersion");
    let error = FieldError::invalid(&path, 0, "must be specified for an update");
    // Kubernetes names the resource here, where all other refusals name the kind.
    let resource = GroupKind::new(request.kind.gvk.group.clone(), request.kind.resource.clone());
    Err(Status::invalid(&resource, &request.about.name, &[error]))
}

/// Whether the client said which version it changed; that must be the stored one.
fn pinned_version(request: &Request, object: &Value, found: &Found) -> Result<bool, Status> {
    let given = object_meta::text(object_meta::of(object), "resourceVersion");
    if given.is_empty() {
        return Ok(false);
    }
    match given.parse::<Revision>() {
        Ok(revision) if revision == found.revision => Ok(true),
        Ok(_) => Err(Status::conflict_modified(&request.kind.group_resource(), &request.about.name)),
        Err(_) => {
            let path = FieldPath::root("metadata").child("resourceVersion");
            let error = FieldError::invalid(&path, given, "must be an unsigned integer");
            Err(Status::invalid(&request.kind.group_kind(), &request.about.name, &[error]))
        }
    }
}

fn validate(request: &Request, object: &Value, old: &Value) -> Vec<FieldError> {
    let metadata = FieldPath::root("metadata");
    let mut errors = object_meta::validate_update(object_meta::of(object), object_meta::of(old), &metadata);
    errors.extend(prepare::validate_metadata(&request.kind, object));
    errors.extend(request.kind.strategy.validate_replacement(object, old, &request.about.subresource));
    errors
}

/// Writes an object that a delete or a controller of the server has changed, if it is still the one read.
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
