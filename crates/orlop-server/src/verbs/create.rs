//! Create: a new object, under its own name or a generated one.

use http::Response;
use orlop_api::{object_meta, schema, status::Status};
use orlop_store::{Compare, Comparison, KeyRange, LeaseId, Op, Put, Read, Revision, Target, Txn};
use serde_json::{Value, json};

use super::{Request, incoming, namespace_guard, prepare, written::Written};
use crate::{
    admission,
    allocation::{self, Claims},
    body::Body,
    cluster::{Found, is_terminating, new_uid, now},
    generated_name,
    query::WriteOptions,
    registry::Encoded,
};

/// Names tried when one is generated.
const NAMES_TRIED: usize = 8;
/// How often a create is tried again because its namespace changed meanwhile.
const GUARD_TRIES: usize = 8;

pub(super) async fn create(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "CreateOptions")?;
    let object = incoming::object(request, options.field_validation)?;
    // Only the store minds.
    if !options.dry_run && !object_meta::text(object_meta::of(&object), "resourceVersion").is_empty() {
        return Err(Status::plain("resourceVersion should not be set on objects to be created"));
    }
    let manager = options.manager(request.user_agent());
    let (code, written) = create_object(request, object, &options, Some(&manager)).await?;
    written.answer(request, code).await
}

/// Creates an object that has been decoded. Without a `manager`, who owns what is already written down.
pub(super) async fn create_object(
    request: &Request,
    mut object: Value,
    options: &WriteOptions,
    manager: Option<&str>,
) -> Result<(u16, Written), Status> {
    object_meta::clear_for_create(&mut object);
    prepare::set_namespace(request, &mut object)?;
    prepare::deduplicate_owners(request, &mut object, "");
    prepare::default(&request.kind, &mut object);
    if let Some(manager) = manager {
        let kind = &request.kind;
        let mut nothing = if kind.rules.custom { json!({}) } else { schema::zero_value(kind.schema.get()) };
        nothing["apiVersion"] = kind.gvk.api_version().into();
        nothing["kind"] = kind.gvk.kind.as_str().into();
        object = prepare::track(request, &nothing, object, manager);
    }
    admission::mutate(request, &mut object, None).await?;
    if !generated_name::is_asked_for(&object) {
        return Ok((201, born(request, object, options).await??));
    }
    // Kinds make labels of names, so a name is generated before they prepare, and they prepare anew for another.
    let mut tries = NAMES_TRIED;
    loop {
        let mut named = object.clone();
        generated_name::complete(&mut named, request.cluster.endings());
        tries -= 1;
        match born(request, named, options).await? {
            Err(_) if tries > 0 => {}
            born => return Ok((201, born?)),
        }
    }
}

/// Prepares, checks and stores a new object; what a client is told if there is one of its name.
async fn born(
    request: &Request,
    mut object: Value,
    options: &WriteOptions,
) -> Result<Result<Written, Status>, Status> {
    begin_life(request, &mut object);
    prepare::refuse_invalid(&request.kind, &object, &prepare::validate(&request.kind, &object))?;
    request.kind.hooks.warnings(&object).into_iter().for_each(|warning| request.warn(warning));
    admission::validate(request, &object, None).await?;
    let found = if options.dry_run {
        let name = object_meta::text(object_meta::of(&object), "name");
        crate::custom::guard(request, name)?;
        namespace_guard::look(request, name).await?;
        match request.cluster.find(&request.kind, &request.about.namespace, name).await? {
            Some(found) => found,
            None => {
                // What would be claimed is shown, and not kept.
                allocation::claim(request, &mut object, None).await?;
                return Ok(Ok(Written::Object(object)));
            }
        }
    } else {
        match store(request, &mut object).await? {
            Ok(written) => return Ok(Ok(written)),
            Err(found) => found,
        }
    };
    Ok(Err(exists(request, &object, &found.as_stored()?)))
}

/// What only the server knows of a new object.
fn begin_life(request: &Request, object: &mut Value) {
    let kind = &request.kind;
    if kind.has_status() && kind.resource != "nodes" {
        reset_status(request, object);
    }
    let meta = prepare::meta(object);
    meta.insert("uid".into(), new_uid().into());
    meta.insert("creationTimestamp".into(), now().to_string().into());
    if kind.rules.has_generation {
        meta.insert("generation".into(), 1.into());
    }
    kind.hooks.prepare_create(object);
    kind.hooks.set_creator(object, &request.user);
}

/// A new object has no history: its status is what its type is by default, or absent.
fn reset_status(request: &Request, object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    map.remove("status");
    let field = request.kind.schema.get().field("status").filter(|_| !request.kind.rules.custom);
    if let Some((field, default)) = field.and_then(|field| Some((field, field.default()?))) {
        let mut status = default.clone();
        schema::apply_defaults(&mut status, field.schema());
        map.insert("status".into(), status);
    }
}

/// An object that says what its name begins with is told that no other was found, even if it says its name too.
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

/// Writes a new object; the one that is there already, if there is one.
async fn store(request: &Request, object: &mut Value) -> Result<Result<Written, Found>, Status> {
    let name = object_meta::text(object_meta::of(object), "name").to_owned();
    let name = name.as_str();
    let key = request.cluster.key(&request.kind, &request.about.namespace, name);
    let key = KeyRange::key(key);
    for _ in 0..GUARD_TRIES {
        // What is claimed is written into the object, and may have to be claimed anew. Most kinds claim nothing.
        let mut copy = allocation::has_claims(request).then(|| object.clone());
        let object = copy.as_mut().unwrap_or(object);
        let mut claims = allocation::claim(request, object, None).await?;
        claims.compares.extend(crate::custom::guard(request, name)?);
        let recalled = namespace_guard::recall(request);
        let by_memory = recalled.is_some();
        claims.compares.extend(match recalled {
            Some(guard) => Some(guard),
            None => namespace_guard::look(request, name).await?,
        });
        let encoded = prepare::encode(request, object).await?;
        let lease = match request.kind.rules.ttl_seconds {
            Some(seconds) => request.cluster.lease(seconds).await?,
            None => 0,
        };
        let txn = transaction(&key, &encoded, claims, lease);
        let result = request.cluster.commit(&request.kind, txn).await?;
        if result.succeeded {
            return Ok(Ok(Written::of(&request.kind, encoded, object, result.revision)));
        }
        if by_memory {
            // What the namespace is now comes before what is found in it.
            namespace_guard::look(request, name).await?;
        }
        if let Some(kv) = result.found().filter(|kv| key.contains(&kv.key)) {
            return Ok(Err(Found::from(kv.clone())));
        }
        // Between the look and the write, the namespace changed or a claim was taken.
    }
    Err(Status::server_timeout(&request.kind.group_resource(), "create", 1))
}

fn transaction(key: &KeyRange, encoded: &Encoded, claims: Claims, lease: LeaseId) -> Txn {
    const ABSENT: Revision = 0;
    let absent = Compare::new(key.clone(), Comparison::Equal, Target::Revision(ABSENT));
    let put = Put::new(key.start().clone(), encoded.bytes.clone());
    let put = Op::Put(Put { terms: encoded.terms.clone(), lease, ..put });
    Txn {
        compares: std::iter::once(absent).chain(claims.compares).collect(),
        then: std::iter::once(put).chain(claims.ops).collect(),
        otherwise: vec![Op::Read(Read::new(key.clone()))],
    }
}
