//! Create.

use http::Response;
use orlop_api::{
    object_meta, schema,
    status::{Reason, Status},
};
use orlop_store::{Compare, Comparison, KeyRange, LeaseId, Op, Put, Read, Revision, Target, Txn};
use serde_json::{Value, json};

use super::{
    Request, admission, decoder, device_access, escalation, parameter_access,
    preconditions::{self, Preconditions},
    prepare, quota, verb_access,
    written::Written,
};
use crate::{
    http::body::Body,
    object::{is_terminating, metadata_mut, new_uid, now},
    registry::{Encoded, Found},
    request::options::WriteOptions,
    storage::{Contribution, generated_name, namespace},
};

/// Attempts at a generated name, as in Kubernetes.
const GENERATED_NAME_ATTEMPTS: usize = 8;
/// Attempts at a create whose preconditions change before its transaction.
const PRECONDITION_ATTEMPTS: usize = 64;

pub(super) async fn create(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "CreateOptions")?;
    let object = decoder::object(request, options.field_validation)?;
    // Checked by storage, which a dry run does not reach.
    if !options.dry_run && object_meta::has_resource_version(object_meta::of(&object)) {
        return Err(Status::plain("resourceVersion should not be set on objects to be created"));
    }
    let manager = options.manager(request.user_agent());
    let (code, written) = create_object(request, object, &options, Some(&manager)).await?;
    written.answer(request, code).await
}

/// Creates a decoded object. Without a `manager`, its managed fields are already recorded.
pub(super) async fn create_object(
    request: &Request,
    object: Value,
    options: &WriteOptions,
    manager: Option<&str>,
) -> Result<(u16, Written), Status> {
    let object = admit(request, object, manager).await?;
    if !generated_name::needs_name(&object) {
        return create_once(request, object, options).await?.into_result().map(|written| (201, written));
    }
    // Strategies derive labels from names: the name is generated before they run, and they run again for
    // another name.
    let mut attempts = GENERATED_NAME_ATTEMPTS;
    loop {
        let mut named = object.clone();
        generated_name::set_name(&mut named, request.cluster.name_suffixes());
        attempts -= 1;
        match create_once(request, named, options).await? {
            Created::NameTaken(_) if attempts > 0 => {}
            created => return created.into_result().map(|written| (201, written)),
        }
    }
}

/// Creates an object of the server itself. Returns false if one of its name exists.
pub(crate) async fn create_missing(request: &Request, object: Value, manager: &str) -> Result<bool, Status> {
    let mut object = admit(request, object, Some(manager)).await?;
    complete(request, &mut object).await?;
    Ok(matches!(store(request, &mut object).await?, Stored::Written(_)))
}

/// Creates an object of the server itself, and its status if it has one, in one write: without admission. Does nothing
/// if an object of the name exists.
pub(crate) async fn create_own(
    request: &Request,
    mut object: Value,
    status: Option<Value>,
    manager: &str,
) -> Result<(), Status> {
    request.kind.set_defaults(&mut object);
    object = record_manager(request, object, manager);
    set_system_fields(request, &mut object);
    if let Some(status) = status {
        object["status"] = status;
    }
    prepare::refuse_invalid(&request.kind, &object, &prepare::validate(&request.kind, &object))?;
    store(request, &mut object).await.map(drop)
}

/// Sets defaults, records the manager and lets admission plugins change a new object.
async fn admit(request: &Request, mut object: Value, manager: Option<&str>) -> Result<Value, Status> {
    object_meta::clear_for_create(&mut object);
    if request.kind.flags.names_objects && object_meta::text(object_meta::of(&object), "name").is_empty() {
        metadata_mut(&mut object).insert("name".into(), new_uid().into());
    }
    prepare::set_namespace(request, &mut object)?;
    prepare::deduplicate_owners(request, &mut object, "");
    request.kind.set_defaults(&mut object);
    if let Some(manager) = manager {
        object = record_manager(request, object, manager);
    }
    provision_namespace(request).await?;
    admission::mutate(request, &mut object, None).await?;
    escalation::check(request, &object, None).await?;
    Ok(object)
}

/// Creates the namespace of a new object if it is missing (NamespaceAutoProvision).
async fn provision_namespace(request: &Request) -> Result<(), Status> {
    let (cluster, namespace) = (&request.cluster, &request.attributes.namespace);
    if !request.kind.namespaced || !cluster.admission().server_plugins().namespace_auto_provision {
        return Ok(());
    }
    let Some(kind) = cluster.objects.registry.kinds().get("", "v1", "namespaces").cloned() else {
        return Ok(());
    };
    if cluster.objects.find(&kind, "", namespace).await?.is_some() {
        return Ok(());
    }
    let attributes = request.attributes.for_object(kind.group_resource(), "v1", "", "");
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let nested = request.nested(kind, attributes);
    match Box::pin(create_object(&nested, object, &WriteOptions::default(), Some("kube-apiserver"))).await {
        Err(status) if status.reason != Reason::AlreadyExists => Err(status),
        _ => Ok(()),
    }
}

/// Records the manager of all fields of a new object.
fn record_manager(request: &Request, object: Value, manager: &str) -> Value {
    let kind = &request.kind;
    let mut nothing = if kind.flags.custom { json!({}) } else { schema::zero_value(kind.schema.get()) };
    nothing["apiVersion"] = kind.gvk.api_version().into();
    nothing["kind"] = kind.gvk.kind.as_str().into();
    prepare::record_managed_fields(request, &nothing, object, manager)
}

/// Result of an attempt to create an object under one name.
enum Created {
    Written(Written),
    /// An object of the name exists; the Status says so.
    NameTaken(Status),
}

impl Created {
    fn into_result(self) -> Result<Written, Status> {
        match self {
            Self::Written(written) => Ok(written),
            Self::NameTaken(status) => Err(status),
        }
    }
}

/// Prepares, validates and stores a new object under its name.
async fn create_once(
    request: &Request,
    mut object: Value,
    options: &WriteOptions,
) -> Result<Created, Status> {
    complete(request, &mut object).await?;
    let stored = match options.dry_run {
        true => store_dry_run(request, object.clone()).await?,
        false => store(request, &mut object).await?,
    };
    Ok(match stored {
        Stored::Written(written) => Created::Written(written),
        Stored::Exists(found) => Created::NameTaken(exists(request, &object, &found.as_stored()?)),
    })
}

/// Sets the fields of a new object that the server owns, validates it, authorizes its creation by an update or an apply
/// and lets admission plugins refuse it.
async fn complete(request: &Request, object: &mut Value) -> Result<(), Status> {
    set_system_fields(request, object);
    let mut errors = device_access::check(request, object, None).await?;
    errors.extend(prepare::validate(&request.kind, object));
    prepare::refuse_invalid(&request.kind, object, &errors)?;
    parameter_access::check(request, object, None).await?;
    request.kind.strategy.warnings_on_create(object).into_iter().for_each(|warning| request.warn(warning));
    verb_access::check_create(request).await?;
    admission::validate(request, object, None).await
}

/// Sets the fields of a new object that the server owns.
fn set_system_fields(request: &Request, object: &mut Value) {
    let kind = &request.kind;
    if kind.has_status() && !kind.flags.keeps_status_on_create {
        reset_status(request, object);
    }
    let meta = metadata_mut(object);
    meta.insert("uid".into(), new_uid().into());
    meta.insert("creationTimestamp".into(), now().to_string().into());
    if kind.flags.tracks_generation {
        meta.insert("generation".into(), 1.into());
    }
    kind.strategy.prepare_for_create(object, &request.context());
}

/// Resets the status of a new object to the default of its type.
fn reset_status(request: &Request, object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    map.remove("status");
    let field = request.kind.schema.get().field("status");
    if let Some((field, default)) = field.and_then(|field| Some((field, field.default()?))) {
        let mut status = default.clone();
        schema::apply_defaults(&mut status, field.schema());
        map.insert("status".into(), status);
    }
}

/// Returns AlreadyExists. With a generateName the message says that no free name was found, even if the object
/// has a name too, as in Kubernetes.
fn exists(request: &Request, object: &Value, found: &Value) -> Status {
    let (resource, meta) = (request.kind.group_resource(), object_meta::of(object));
    let name = object_meta::text(meta, "name");
    if !object_meta::text(meta, "generateName").is_empty() {
        Status::generate_name_conflict(&resource, name)
    } else if is_terminating(found) {
        Status::already_exists_terminating(&resource, name)
    } else {
        Status::already_exists(&resource, name)
    }
}

/// Result of storing a new object.
enum Stored {
    Written(Written),
    Exists(Found),
}

/// Does everything but the write. Shows what would be allocated.
async fn store_dry_run(request: &Request, mut object: Value) -> Result<Stored, Status> {
    let name = object_meta::text(object_meta::of(&object), "name");
    preconditions::check(request, name).await?;
    if let Some(found) =
        request.cluster.objects.find(&request.kind, &request.attributes.namespace, name).await?
    {
        return Ok(Stored::Exists(found));
    }
    Preconditions::evaluate(request, &mut object, None).await?;
    quota::charge(request, &object, None).await?;
    Ok(Stored::Written(Written::Object(request.kind.as_read(object).await?)))
}

/// Writes a new object, unless one of its name exists.
async fn store(request: &Request, object: &mut Value) -> Result<Stored, Status> {
    let (kind, objects, namespace) = (&request.kind, &request.cluster.objects, &request.attributes.namespace);
    let name = object_meta::text(object_meta::of(object), "name").to_owned();
    let key = KeyRange::key(objects.key(kind, namespace, &name));
    for _ in 0..PRECONDITION_ATTEMPTS {
        // Another attempt allocates again. Most kinds allocate nothing, and need no copy.
        let mut copy = preconditions::complete_object(request).then(|| object.clone());
        let object = copy.as_mut().unwrap_or(object);
        let Preconditions { mut contribution, from_cache } =
            Preconditions::evaluate(request, object, None).await?;
        let charge = quota::charge(request, object, None).await?;
        let encoded = prepare::encode(request, object).await?;
        let lease = match kind.flags.ttl_seconds {
            Some(seconds) => objects.lease(seconds).await?,
            None => 0,
        };
        contribution.merge(charge.contribution);
        let txn = transaction(&key, &encoded, contribution, lease);
        let result = request.cluster.commit(kind, txn).await?;
        if result.succeeded {
            return Ok(Stored::Written(Written::of(kind, encoded, object, result.revision)));
        }
        if from_cache {
            // A namespace that is terminating by now is reported before a conflict in it.
            namespace::read(objects, kind, namespace, &name).await?;
        }
        if let Some(kv) = result.found().filter(|kv| key.contains(&kv.key)) {
            return Ok(Stored::Exists(Found::from(kv.clone())));
        }
        // Lost a race: the namespace changed or an allocation was taken.
    }
    Err(Status::server_timeout(&kind.group_resource(), "create", 1))
}

fn transaction(key: &KeyRange, encoded: &Encoded, contribution: Contribution, lease: LeaseId) -> Txn {
    const ABSENT: Revision = 0;
    let absent = Compare::new(key.clone(), Comparison::Equal, Target::Revision(ABSENT));
    let put = Put::new(key.start().clone(), encoded.bytes.clone());
    let put = Op::Put(Put { terms: encoded.terms.clone(), lease, ..put });
    Txn {
        compares: std::iter::once(absent).chain(contribution.compares).collect(),
        then: std::iter::once(put).chain(contribution.ops).collect(),
        otherwise: vec![Op::Read(Read::new(key.clone()))],
    }
}
