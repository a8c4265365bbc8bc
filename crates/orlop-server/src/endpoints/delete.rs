//! Delete: at once, or by a deletionTimestamp and finalizers or a grace period.

use http::Response;
use orlop_api::{
    field_error::{FieldError, FieldPath},
    object_meta::{self, Propagation},
    options,
    status::Status,
    time::Time,
};
use serde_json::Value;

use super::{
    Request, admission, answer, decoder, delete_unreadable,
    removal::{has_finalizers, remove},
    update,
};
use crate::{
    http::{body::Body, query::Query, response},
    object::{is_terminating, metadata_mut, now},
    registry::Kind,
    request::{Subresource, options::refuse},
    storage::Contribution,
};

/// Attempts at a delete without preconditions.
const TRIES: usize = 64;

/// DeleteOptions.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    dry_run: Vec<String>,
    grace_seconds: Option<i64>,
    propagation: Option<String>,
    orphan_dependents: Option<bool>,
    uid: Option<String>,
    resource_version: Option<String>,
    /// Deletes an object that cannot be read, whatever depends on it.
    ignores_read_error: bool,
}

const IGNORES_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
/// Group of CustomResourceDefinitions.
const DEFINITIONS: &str = "apiextensions.k8s.io";

impl DeleteOptions {
    /// Parses and validates the options from the body, or from the query if there is none.
    pub(super) fn of(request: &Request) -> Result<Self, Status> {
        let options = if request.body.is_empty() { from_query(&request.query)? } else { from_body(request)? };
        refuse("DeleteOptions", &options.given().validate())?;
        warn_of_orphans(request, &options);
        Ok(options)
    }

    /// Returns the options for validation.
    fn given(&self) -> options::DeleteOptions {
        options::DeleteOptions {
            dry_run: self.dry_run.clone(),
            orphan_dependents: self.orphan_dependents,
            propagation_policy: self.propagation.clone(),
            grace_period_seconds: self.grace_seconds,
            has_preconditions: self.has_preconditions(),
            ignore_store_read_error: self.ignores_read_error,
        }
    }

    /// Returns true if the options name a uid or a resourceVersion.
    pub(super) fn has_preconditions(&self) -> bool {
        self.uid.is_some() || self.resource_version.is_some()
    }

    /// Refuses unsafe deletion, which is of one object.
    pub(super) fn refuse_unsafe_deletion(&self) -> Result<(), Status> {
        let detail = "is not allowed with DELETECOLLECTION, try again after removing the option";
        let error = FieldError::invalid(&FieldPath::root(IGNORES_READ_ERROR), true, detail);
        if self.ignores_read_error { refuse("DeleteOptions", &[error]) } else { Ok(()) }
    }

    /// Returns true if nothing is deleted.
    fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }
}

fn from_query(query: &Query) -> Result<DeleteOptions, Status> {
    let text = |name: &str| query.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
    Ok(DeleteOptions {
        dry_run: query.all("dryRun").map(str::to_owned).collect(),
        grace_seconds: query.number("gracePeriodSeconds")?,
        propagation: text("propagationPolicy"),
        orphan_dependents: query.switch("orphanDependents"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ignores_read_error: query.switch(IGNORES_READ_ERROR) == Some(true),
    })
}

fn from_body(request: &Request) -> Result<DeleteOptions, Status> {
    let value = decoder::delete_options(request)?;
    if let Some(audit) = &request.audit {
        audit.request_object(&value);
    }
    let mut options = from_value(&value);
    options.dry_run.extend(request.query.all("dryRun").map(str::to_owned));
    Ok(options)
}

fn from_value(value: &Value) -> DeleteOptions {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let preconditions = value.get("preconditions");
    let precondition = |name: &str| text(preconditions.and_then(|preconditions| preconditions.get(name)));
    let dry_run = value.get("dryRun").and_then(Value::as_array).into_iter().flatten();
    DeleteOptions {
        dry_run: dry_run.map(|stage| stage.as_str().unwrap_or_default().to_owned()).collect(),
        grace_seconds: value.get("gracePeriodSeconds").and_then(Value::as_i64),
        propagation: text(value.get("propagationPolicy")),
        orphan_dependents: value.get("orphanDependents").and_then(Value::as_bool),
        uid: precondition("uid"),
        resource_version: precondition("resourceVersion"),
        ignores_read_error: value.get(IGNORES_READ_ERROR).and_then(Value::as_bool) == Some(true),
    }
}

pub(super) async fn delete(request: &Request) -> Result<Response<Body>, Status> {
    let options = DeleteOptions::of(request)?;
    if options.ignores_read_error {
        return Box::pin(delete_unreadable::delete(request, options.is_dry_run())).await;
    }
    let attributes = &request.attributes;
    match delete_named(request, &options, &attributes.namespace, &attributes.name).await? {
        Deleted::Gone(object) if request.kind.flags.returns_deleted_object => {
            answer::object(request, 200, object)
        }
        Deleted::Gone(object) => {
            let uid = object_meta::text(object_meta::of(&object), "uid");
            let status = Status::deleted(&request.kind.group_resource(), &attributes.name, uid);
            let encoding = request.negotiated.encoding;
            Ok(response::bytes(200, encoding.media_type(), response::encode(encoding, &status)))
        }
        Deleted::Marked(object) => {
            let code = if options.orphan_dependents == Some(false) { 202 } else { 200 };
            answer::object(request, code, object)
        }
    }
}

/// Warns a client that names no propagation policy, where the kind's default may surprise it.
fn warn_of_orphans(request: &Request, options: &DeleteOptions) {
    if options.propagation.is_none() && options.orphan_dependents.is_none() {
        let warnings = request.kind.strategy.warnings_on_delete_without_propagation();
        warnings.into_iter().for_each(|warning| request.warn(warning));
    }
}

/// Deletes a pod for an eviction, after `mark` has set its condition. `options` are those of the Eviction.
pub(crate) async fn evict(
    request: &Request,
    options: &Value,
    dry_run: bool,
    mark: impl Fn(&Value) -> Value,
) -> Result<(), Status> {
    let mut options = from_value(options);
    if dry_run {
        options.dry_run.push("All".to_owned());
    }
    let attributes = &request.attributes;
    if !options.is_dry_run() {
        let marked = update::change(request, false, |pod| {
            check_preconditions(request, &options, &attributes.name, pod)?;
            Ok(mark(pod))
        });
        let marked = marked.await?.into_object(&request.kind).await?;
        // A resourceVersion precondition applies to the pod before it was marked.
        let version = object_meta::text(object_meta::of(&marked), "resourceVersion").to_owned();
        options.resource_version = options.resource_version.map(|_| version);
    }
    delete_named(request, &options, &attributes.namespace, &attributes.name).await.map(drop)
}

/// Result of a delete.
pub(crate) enum Deleted {
    /// The object was removed.
    Gone(Value),
    /// The object waits for finalizers or its grace period.
    Marked(Value),
}

/// Deletes an object of the request's kind.
pub(crate) async fn delete_named(
    request: &Request,
    options: &DeleteOptions,
    namespace: &str,
    name: &str,
) -> Result<Deleted, Status> {
    let kind = &request.kind;
    if request.cluster.admission().server_plugins().namespace_lifecycle {
        check_mortality(kind, name)?;
    }
    for _ in 0..TRIES {
        let found = request.cluster.objects.get(kind, namespace, name).await?;
        let old = kind.read(&found).await?;
        check_preconditions(request, options, name, &old)?;
        let mut object = old.clone();
        set_finalizers(request, options, &mut object);
        kind.strategy.prepare_for_delete(&mut object, &request.context());
        let grace = grace_seconds(request, options, &object);
        let waits = has_finalizers(&object) || grace > 0 || kind.strategy.has_pending_finalization(&object);
        // The eviction was admitted, and its delete is part of it.
        if request.attributes.subresource != Some(Subresource::Eviction) {
            admission::delete(request, &old).await?;
        }
        if !waits {
            if kind.strategy.grace_period_seconds(&object, None).is_some() {
                mark(request, &mut object, 0);
            }
            if options.is_dry_run() {
                return Ok(Deleted::Gone(object));
            }
            if let Some(removed) = remove(request, &object, &found).await? {
                return Ok(Deleted::Gone(removed.into_object(kind).await?));
            }
            continue;
        }
        mark(request, &mut object, grace);
        if options.is_dry_run() || object == old {
            return Ok(Deleted::Marked(object));
        }
        if let Some(written) = update::swap(request, &mut object, &found, Contribution::default()).await? {
            return Ok(Deleted::Marked(written.into_object(kind).await?));
        }
    }
    Err(Status::server_timeout(&kind.group_resource(), "delete", 1))
}

/// Refuses to delete an object that the cluster cannot do without.
fn check_mortality(kind: &Kind, name: &str) -> Result<(), Status> {
    if kind.immortal_names.contains(&name) {
        let detail = format!("this {} may not be deleted", kind.singular);
        return Err(Status::forbidden(&kind.group_resource(), name, &detail));
    }
    Ok(())
}

fn check_preconditions(
    request: &Request,
    options: &DeleteOptions,
    name: &str,
    object: &Value,
) -> Result<(), Status> {
    let meta = object_meta::of(object);
    let wanted =
        [("UID", &options.uid, "uid"), ("ResourceVersion", &options.resource_version, "resourceVersion")];
    for (what, wanted, field) in wanted {
        let found = object_meta::text(meta, field);
        if let Some(wanted) = wanted
            && wanted != found
        {
            if request.kind.gvk.group == DEFINITIONS {
                let why = format!(
                    "precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
                );
                return Err(Status::conflict(&request.kind.group_resource(), name, &why));
            }
            return Err(Status::conflict_delete(&request.kind.group_kind(), name, what, wanted, found));
        }
    }
    Ok(())
}

/// Records the propagation policy as a finalizer, for the garbage collector.
fn set_finalizers(request: &Request, options: &DeleteOptions, object: &mut Value) {
    if !request.kind.strategy.accepts_propagation_policy(object) {
        return;
    }
    let asked = match (options.propagation.as_deref(), options.orphan_dependents) {
        (Some(policy), _) => Propagation::parse(policy),
        (None, Some(true)) => Some(Propagation::Orphan),
        (None, Some(false)) => Some(Propagation::Background),
        (None, None) => None,
    };
    let default = if request.kind.flags.orphans_dependents_by_default {
        Propagation::Orphan
    } else {
        Propagation::Background
    };
    let meta = metadata_mut(object);
    let list = meta.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let present: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
    let finalizers = object_meta::deletion_finalizers(&present, asked, default);
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".into(), finalizers.into());
    }
}

/// Returns the grace period of a delete. Another delete can only shorten it.
fn grace_seconds(request: &Request, options: &DeleteOptions, object: &Value) -> i64 {
    let wanted = request.kind.strategy.grace_period_seconds(object, options.grace_seconds).unwrap_or(0);
    let given = object_meta::of(object).get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    match given {
        Some(given) if is_terminating(object) => wanted.min(given),
        _ => wanted,
    }
}

fn mark(request: &Request, object: &mut Value, grace: i64) {
    let already = is_terminating(object);
    let given = object_meta::of(object).get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    let shorter = given.unwrap_or(0) != grace;
    if !already || shorter {
        let ends = Time::from_unix(now().unix_seconds + grace);
        let meta = metadata_mut(object);
        meta.insert("deletionTimestamp".into(), ends.to_string().into());
        if request.kind.gvk.group == DEFINITIONS {
            // A definition's delete is its finalizer's, without a grace period.
            request.kind.strategy.mark_terminating(object);
            return;
        }
        meta.insert("deletionGracePeriodSeconds".into(), grace.into());
        let generation = meta.get("generation").and_then(Value::as_i64).unwrap_or(0);
        if generation > 0 && !already {
            meta.insert("generation".into(), (generation + 1).into());
        }
    }
    request.kind.strategy.mark_terminating(object);
}
