//! Scale subresource: replicas in one kind for all kinds that have them.

use std::collections::BTreeMap;

use http::Response;
use orlop_api::{
    apply::{FieldManager, ScaleHandler, SingleVersion, TypeRef},
    group_version::GroupVersion,
    managed_fields::{ManagedFields, Path},
    object_meta,
    status::Status,
    table::{self, Column, IncludeObject, Row, age},
};
use serde_json::{Value, json};

use crate::{
    endpoints::{
        Request, answer,
        apply::Configuration,
        decoder::{self, BodySchema},
        patch::Patch,
        scale_view::{scale_kind, scale_of, set_replicas},
        update,
    },
    http::{
        body::Body,
        negotiation::{APPLY, Transform, content_type},
        response,
    },
    object::now,
    registry::Kind,
    request::options::WriteOptions,
};

pub(super) async fn get(request: &Request) -> Result<Response<Body>, Status> {
    let attributes = &request.attributes;
    let object =
        request.cluster.objects.object(&request.kind, &attributes.namespace, &attributes.name).await?;
    let (scale, says) = scale_of(&request.kind, &object)?;
    match request.kind.strategy.scale() {
        Some(paths) if !says => Err(Status::internal(&paths.missing_replicas())),
        _ => respond(request, scale),
    }
}

pub(super) async fn update(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "UpdateOptions")?;
    let wanted = decoder::decode_as(request, &request.body, &scale_kind(), options.field_validation)?;
    update::check_name(request, &wanted)?;
    let manager = options.manager(request.user_agent());
    write(request, options.dry_run, |present, fields| {
        update::check_uid(request, &wanted, present)?;
        Ok(fields.update(present, wanted.clone(), &manager, now()))
    })
    .await
}

pub(super) async fn patch(request: &Request) -> Result<Response<Body>, Status> {
    let media_type = content_type(&request.headers);
    let options = WriteOptions::of_patch(&request.query, media_type == APPLY)?;
    if media_type == APPLY {
        let config = Configuration::read(request);
        let (manager, force) = (options.field_manager.as_str(), options.force.unwrap_or(false));
        return write(request, options.dry_run, |present, fields| {
            let config = config.as_ref().map_err(Status::clone)?;
            let applied = fields.apply(Some(present), config.object(), manager, force, now())?;
            config.report_duplicates(request, options.field_validation)?;
            Ok(applied.object.into_owned())
        })
        .await;
    }
    let (patch, kind) = (Patch::read(request, media_type, options.field_validation)?, scale_kind());
    let body_schema = BodySchema::of(request, &kind)?;
    let manager = options.manager(request.user_agent());
    write(request, options.dry_run, |present, fields| {
        let mut scale = patch.apply(request, body_schema, &kind, present)?;
        patch.check(request, body_schema, &mut scale, options.field_validation)?;
        Ok(fields.update(present, scale, &manager, now()))
    })
    .await
}

/// Writes the scale that `make` returns: its replicas, and their managed fields.
async fn write(
    request: &Request,
    dry_run: bool,
    make: impl Fn(&Value, &FieldManager<'_>) -> Result<Value, Status>,
) -> Result<Response<Body>, Status> {
    let kind = scale_kind();
    let api_version = kind.api_version();
    let body_schema = BodySchema::of(request, &kind)?;
    let versions = SingleVersion { api_version: &api_version, of: TypeRef::resource(body_schema.schema) };
    let fields = FieldManager {
        kind: &kind,
        versions: &versions,
        subresource: "scale",
        owned_fields: &BTreeMap::new(),
    };
    let written = update::write(request, dry_run, |old| {
        let (mut present, says) = scale_of(&request.kind, old)?;
        let owners = ManagedFields::of(old).unwrap_or_default();
        let handler = handler(request, &owners);
        handler.to_scale(&owners).store(&mut present);
        let scale = make(&present, &fields)?;
        let paths = request.kind.strategy.scale();
        if let Some(paths) = paths
            && !says
            && scale.pointer("/spec/replicas").is_none()
        {
            return Err(Status::bad_request(paths.empty_replicas()));
        }
        let mut object = old.clone();
        set_replicas(request, &mut object, &scale)?;
        let owners_of_scale = ManagedFields::of(&scale).unwrap_or_default();
        handler.to_parent(&owners, owners_of_scale).store(&mut object);
        // A scale of the current version is treated as one without: after a lost race `make` runs again, and refuses a
        // client that named the version.
        let version = object_meta::text(object_meta::of(&scale), "resourceVersion");
        let same = version == object_meta::text(object_meta::of(&present), "resourceVersion");
        let uid = object_meta::text(object_meta::of(&scale), "uid");
        if !uid.is_empty() {
            object["metadata"]["uid"] = uid.into();
        }
        object["metadata"]["resourceVersion"] = if same { "".into() } else { version.into() };
        update::complete(request, old, object, None)
    })
    .await?;
    let (scale, _) = scale_of(&request.kind, &written.into_object(&request.kind).await?)?;
    respond(request, scale)
}

/// Responds with a scale, which has printer columns of its own.
fn respond(request: &Request, scale: Value) -> Result<Response<Body>, Status> {
    let Transform::Table(version) = request.negotiated.transform else {
        return answer::object(request, 200, scale);
    };
    let columns = [
        Column::new("Name", "string", ""),
        Column::new("Desired", "integer", ""),
        Column::new("Available", "integer", ""),
        Column::new("Age", "string", ""),
    ];
    let number = |path: &str| scale.pointer(path).cloned().unwrap_or_else(|| 0.into());
    let (name, resource_version) = (number("/metadata/name"), number("/metadata/resourceVersion"));
    let cells = vec![name, number("/spec/replicas"), number("/status/replicas"), age(&scale, now())];
    let include = IncludeObject::parse(request.query.text("includeObject")).unwrap_or_default();
    let row = Row::of(cells, &scale, include, version);
    let table = table::table(Some(&columns), &[row], json!({"resourceVersion": resource_version}), version);
    let encoding = request.negotiated.encoding;
    Ok(response::bytes(200, encoding.media_type(), response::encode(encoding, &table)))
}

/// Returns the paths of replicas in every version that has managed fields.
fn handler(request: &Request, owners: &ManagedFields) -> ScaleHandler {
    let kinds = request.cluster.objects.registry.kinds();
    let own = request.kind.gvk.api_version();
    let versions = owners.entries.values().map(|entry| entry.api_version.as_str()).chain([own.as_str()]);
    let replicas_paths = versions.filter_map(|api_version| {
        let version = GroupVersion::parse(api_version).ok()?;
        let kind = kinds.get(&version.group, &version.version, &request.kind.resource)?;
        Some((api_version.to_owned(), kind.subresource("scale").map(|_| replicas_path(kind))))
    });
    ScaleHandler { replicas_paths: replicas_paths.collect(), api_version: own.clone() }
}

fn replicas_path(kind: &Kind) -> Path {
    let path = kind.strategy.scale().map_or(".spec.replicas", |paths| &paths.spec_replicas_path);
    Path::of_fields(&path.split('.').filter(|step| !step.is_empty()).collect::<Vec<_>>())
}
