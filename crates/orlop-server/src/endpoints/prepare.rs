//! Steps of a write between decoding and storage: namespace, defaults, managed fields, validation.

use orlop_api::{
    apply::{FieldManager, SingleVersion, TypeRef},
    field_error::{FieldError, FieldPath},
    managed_fields::entries,
    object_meta::{self, MetaRules},
    status::Status,
};
use serde_json::Value;

use super::Request;
use crate::{
    http::negotiation::{APPLY, content_type},
    object::{metadata_mut, now},
    registry::{Encoded, Kind},
};

/// Sets the namespace of the path.
pub(super) fn set_namespace(request: &Request, object: &mut Value) -> Result<(), Status> {
    let namespace = request.attributes.namespace.clone();
    let given = object_meta::text(object_meta::of(object), "namespace").to_owned();
    if !request.kind.namespaced {
        metadata_mut(object).remove("namespace");
        return Ok(());
    }
    if !given.is_empty() && given != namespace {
        return Err(Status::namespace_mismatch());
    }
    if namespace.is_empty() {
        return Err(Status::bad_request("an empty namespace may not be set during creation"));
    }
    metadata_mut(object).insert("namespace".into(), namespace.into());
    Ok(())
}

/// Removes duplicate owner references, and warns. `when` says when, if not in the request itself.
pub(crate) fn deduplicate_owners(request: &Request, object: &mut Value, when: &str) {
    let repeated = object_meta::deduplicate_owner_references(metadata_mut(object));
    if !repeated.is_empty() {
        request.warn(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references \
             in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate \
             UID(s) observed: {}",
            repeated.join(", ")
        ));
    }
}

/// Encodes an object for the store. Drops the managed fields of one that is too large, unless it is applied: the
/// object matters more than its managers.
pub(super) async fn encode(request: &Request, object: &mut Value) -> Result<Encoded, Status> {
    let encoded = request.kind.write(object).await?;
    let limit = request.cluster.objects.store.limits().value_bytes;
    if encoded.bytes.len() <= limit || content_type(&request.headers) == APPLY {
        return Ok(encoded);
    }
    entries::remove_from(object);
    request.kind.write(object).await
}

/// Records the managed fields of an update.
pub(super) fn record_managed_fields(request: &Request, live: &Value, object: Value, manager: &str) -> Value {
    with_field_manager(request, |fields| fields.update(live, object, manager, now()))
}

/// Calls `work` with the field manager of the request's endpoint.
pub(super) fn with_field_manager<T>(request: &Request, work: impl FnOnce(&FieldManager<'_>) -> T) -> T {
    let kind = &request.kind;
    let api_version = kind.gvk.api_version();
    let single = SingleVersion { api_version: &api_version, of: TypeRef::resource(kind.schema.get()) };
    let versions = kind.versions().unwrap_or(&single);
    let subresource = request.attributes.subresource_name();
    let owned_fields = kind.ownable_fields(subresource);
    work(&FieldManager { kind: &kind.gvk, versions, subresource, owned_fields: &owned_fields })
}

/// Returns Invalid if there are errors.
pub(super) fn refuse_invalid(kind: &Kind, object: &Value, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = object_meta::text(object_meta::of(object), "name");
    // Metadata is validated by every kind, and by some twice.
    let mut each: Vec<FieldError> = Vec::with_capacity(errors.len());
    for error in errors {
        if !each.contains(error) {
            each.push(error.clone());
        }
    }
    Err(Status::invalid(&kind.group_kind(), name, &each))
}

/// Validates a new object.
pub(super) fn validate(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let own = kind.strategy.validate(object);
    if kind.flags.validates_metadata_last && !own.is_empty() {
        return own;
    }
    let mut errors = validate_metadata(kind, object);
    errors.extend(own);
    errors
}

/// Validates the metadata of an object.
pub(super) fn validate_metadata(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let rules = MetaRules { namespaced: kind.namespaced, name: kind.name_rule };
    let (meta, path) = (object_meta::of(object), FieldPath::root("metadata"));
    let mut errors = object_meta::validate(meta, rules, &path);
    if kind.flags.qualified_finalizers {
        errors.extend(object_meta::unqualified_finalizers(meta, &path));
    }
    errors
}
