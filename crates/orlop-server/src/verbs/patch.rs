//! Patch: JSON patch, merge patch, strategic merge, apply. All go through the loop of `update`.

use http::Response;
use orlop_api::{
    decode::{self, DecodeError, Decoded, StrictOrder},
    field_error::{FieldError, FieldPath},
    go_text,
    group_version::GroupKind,
    object_meta,
    options::FieldValidation,
    patch::{JsonPatch, PatchError, merge_patch, strategic_merge_patch},
    schema::check_types,
    status::Status,
};
use serde_json::Value;

use super::{
    Request,
    create::create_object,
    incoming::{self, Form},
    prepare,
    update::{check_name, completed, write},
};
use crate::{body::Body, cluster::now, negotiation::content_type, query::WriteOptions};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

pub(super) async fn patch(request: &Request) -> Result<Response<Body>, Status> {
    let media_type = content_type(&request.headers);
    let options = WriteOptions::of_patch(&request.query, media_type == APPLY)?;
    if media_type == APPLY {
        return apply(request, &options).await;
    }
    let patch = Patch::decode(request, media_type)?;
    let form = Form::of(request, &request.kind.gvk)?;
    let manager = options.manager(request.user_agent());
    let written = write(request, options.dry_run, |old| {
        let mut object = patch.apply(form, old)?;
        check_identity(request, &object, old)?;
        patch.check(request, form, &mut object, options.field_validation)?;
        // A patch that says nothing of the version is for whatever version there is.
        if object_meta::of(&object).get("resourceVersion") == object_meta::of(old).get("resourceVersion") {
            prepare::meta(&mut object).remove("resourceVersion");
        }
        completed(request, old, object, Some(&manager))
    })
    .await?;
    written.answer(request, 200).await
}

fn undecodable(why: &str) -> Status {
    Status::bad_request(format!("error decoding patch: {why}"))
}

/// A patch of one of the kinds that say what to change.
pub(crate) struct Patch {
    change: Change,
    /// What `fieldValidation` has to say of the patch itself.
    strict_errors: Vec<String>,
}

enum Change {
    Json(JsonPatch),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    pub(crate) fn decode(request: &Request, media_type: &str) -> Result<Self, Status> {
        let (custom, body) = (request.kind.rules.custom, &request.body);
        match media_type {
            JSON | MERGE => {}
            STRATEGIC if !custom => {}
            _ if custom => return Err(Status::unsupported_media_type(&[JSON, MERGE, APPLY])),
            _ => return Err(Status::patch_type_unknown()),
        }
        let decoded = decode::json(body).map_err(|error| match error {
            DecodeError::Json(_) => Status::bad_request("invalid JSON patch"),
            other => undecodable(&other.to_string()),
        })?;
        if media_type == JSON {
            let patch = JsonPatch::read(decoded, body).map_err(|error| match error {
                PatchError::Malformed(why) => undecodable(&why),
                other => Status::from(other),
            })?;
            let strict_errors = patch.strict_errors().to_vec();
            return Ok(Self { change: Change::Json(patch), strict_errors });
        }
        if !decoded.value.is_object() {
            let found = go_text::json_type(&decoded.value);
            let expected = "Go value of type map[string]interface {}";
            return Err(undecodable(&format!("json: cannot unmarshal {found} into {expected}")));
        }
        let strict_errors = decoded.strict_errors(body, Vec::new(), StrictOrder::DuplicatesFirst);
        let change = if media_type == MERGE { Change::Merge } else { Change::Strategic };
        Ok(Self { change: change(decoded.value), strict_errors })
    }

    pub(crate) fn apply(&self, form: Form<'_>, old: &Value) -> Result<Value, Status> {
        let patched = match &self.change {
            Change::Json(patch) => patch.apply(old),
            Change::Merge(patch) => merge_patch(old, patch),
            Change::Strategic(patch) => strategic_merge_patch(old, patch, form.schema),
        }?;
        decode::check_depth(&patched).map_err(|error| Status::bad_request(error.to_string()))?;
        Ok(patched)
    }

    /// What came of the patch must fit the types of its form, and may only have fields that exist, or that is
    /// told as asked.
    pub(crate) fn check(
        &self,
        request: &Request,
        form: Form<'_>,
        patched: &mut Value,
        validation: FieldValidation,
    ) -> Result<(), Status> {
        if !form.custom {
            check_types(patched, form.schema)
                .map_err(|mismatch| self.refusal(patched, &mismatch.to_string()))?;
        }
        let given = (validation == FieldValidation::Strict).then(|| patched.clone());
        let unknown = incoming::prune_again(request, form, patched)?;
        let mut errors = self.strict_errors.clone();
        errors.extend(unknown.iter().map(|path| format!("unknown field \"{path}\"")));
        match given {
            Some(given) if !errors.is_empty() => Err(self.refusal(&given, &decode::strict_error(&errors))),
            _ => {
                if validation == FieldValidation::Warn {
                    decode::strict_warnings(&errors).for_each(|error| request.warn(error));
                }
                Ok(())
            }
        }
    }

    fn refusal(&self, patched: &Value, why: &str) -> Status {
        let value = match &self.change {
            Change::Strategic(patch) => go_text::display(patch),
            Change::Json(_) | Change::Merge(_) => go_text::json(patched),
        };
        let error = FieldError::invalid(&FieldPath::root("patch"), value, why);
        Status::invalid(&GroupKind::default(), "", &[error])
    }
}

/// A patch may not make another object of it.
fn check_identity(request: &Request, object: &Value, old: &Value) -> Result<(), Status> {
    for field in ["kind", "apiVersion"] {
        if object.get(field) != old.get(field) {
            return Err(Status::bad_request(format!(
                "the {field} of an object may not be changed by a patch"
            )));
        }
    }
    check_name(request, object)?;
    if object_meta::of(object).get("namespace") != object_meta::of(old).get("namespace") {
        return Err(Status::namespace_mismatch());
    }
    Ok(())
}

/// Server-side apply: the object becomes what the manager wants of it, and is created if need be.
async fn apply(request: &Request, options: &WriteOptions) -> Result<Response<Body>, Status> {
    let config = configuration(request, options)?;
    let (manager, force) = (options.field_manager.as_str(), options.force.unwrap_or(false));
    let about = &request.about;
    let exists = request.cluster.find(&request.kind, &about.namespace, &about.name).await?.is_some();
    if !exists && about.subresource.is_empty() {
        let applied = prepare::with_field_manager(request, |fields| {
            fields.apply(None, &config, manager, force, now())
        })?;
        let uid = object_meta::text(object_meta::of(&config), "uid");
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict(&request.kind.group_resource(), &about.name, &why));
        }
        match create_object(request, applied.object.into_owned(), options, None).await {
            // Somebody else was faster: then it is there to be changed.
            Err(status) if status.code == 409 => {}
            created => {
                let (code, written) = created?;
                return written.answer(request, code).await;
            }
        }
    }
    let written = write(request, options.dry_run, |old| {
        let applied = prepare::with_field_manager(request, |fields| {
            fields.apply(Some(old), &config, manager, force, now())
        })?;
        if !applied.changed {
            return Ok(applied.object.into_owned());
        }
        let mut object = applied.object.into_owned();
        // What is applied is for whatever version there is, unless it says which.
        if object_meta::text(object_meta::of(&config), "resourceVersion").is_empty() {
            prepare::meta(&mut object).remove("resourceVersion");
        }
        completed(request, old, object, None)
    })
    .await?;
    written.answer(request, 200).await
}

/// What is applied, if it may be applied to the object that the request names.
pub(crate) fn configuration(request: &Request, options: &WriteOptions) -> Result<Value, Status> {
    let decoded = decode::yaml_or_json(&request.body).map_err(|error| match error {
        DecodeError::Yaml(why) => Status::bad_request(format!("error encoding patch: {why}")),
        other => undecodable(&other.to_string()),
    })?;
    if !decoded.value.is_object() && !decoded.value.is_null() {
        let found = go_text::json_type(&decoded.value);
        let why = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
        return Err(undecodable(&format!("error unmarshaling JSON: while decoding JSON: {why}")));
    }
    report_duplicates(request, &decoded, options.field_validation)?;
    let mut config = decoded.value;
    check_target(request, &mut config)?;
    Ok(config)
}

/// A key that comes twice is told as asked, and by its line, whether in YAML or in JSON; the last one counts.
fn report_duplicates(
    request: &Request,
    decoded: &Decoded,
    validation: FieldValidation,
) -> Result<(), Status> {
    let found =
        |decoded: &Decoded| decoded.strict_errors(&request.body, Vec::new(), StrictOrder::DuplicatesFirst);
    if validation == FieldValidation::Ignore || found(decoded).is_empty() {
        return Ok(());
    }
    let errors = decode::yaml(&request.body).map_or_else(|_| found(decoded), |decoded| found(&decoded));
    if validation == FieldValidation::Strict {
        let told = errors.join(", ");
        let why = format!("error strict decoding patch: error converting YAML to JSON: {told}");
        return Err(Status::bad_request(why));
    }
    decode::strict_warnings(&errors).for_each(|error| request.warn(error));
    Ok(())
}

/// An applied object names what it is applied to. Whether it is of the right kind and version, whoever merges
/// it says.
fn check_target(request: &Request, config: &mut Value) -> Result<(), Status> {
    let name = object_meta::text(object_meta::of(config), "name");
    if !name.is_empty() && name != request.about.name {
        return Err(Status::name_mismatch(name, &request.about.name));
    }
    prepare::meta(config).insert("name".into(), request.about.name.clone().into());
    prepare::set_namespace(request, config)
}
