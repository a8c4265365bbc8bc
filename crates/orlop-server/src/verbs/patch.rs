//! Patch: JSON patch, merge patch, strategic merge, apply. All go through the loop of `update`.

use http::Response;
use orlop_api::{
    decode::{self, Decoded, StrictOrder},
    field_error::{FieldError, FieldPath},
    go_text,
    group_version::{GroupKind, GroupVersionKind},
    object_meta,
    options::FieldValidation,
    patch::{JsonPatch, merge_patch, strategic_merge_patch},
    schema::check_types,
    status::Status,
};
use serde_json::Value;

use super::{
    Request,
    create::create_object,
    incoming::{self, Form},
    prepare,
    update::{completed, write},
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
pub(crate) enum Patch {
    Json(JsonPatch),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    pub(crate) fn decode(request: &Request, media_type: &str) -> Result<Self, Status> {
        let value = || {
            decode::json(&request.body)
                .map(|decoded| decoded.value)
                .map_err(|error| undecodable(&error.to_string()))
                .and_then(|value| match &value {
                    Value::Object(_) => Ok(value),
                    other => Err(undecodable(&format!(
                        "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                        go_text::json_type(other)
                    ))),
                })
        };
        match media_type {
            JSON => JsonPatch::decode(&request.body).map(Self::Json).map_err(|error| {
                let status = Status::from(error);
                if status.code == 400 { undecodable(&status.message) } else { status }
            }),
            MERGE => Ok(Self::Merge(value()?)),
            STRATEGIC if !request.kind.rules.custom => Ok(Self::Strategic(value()?)),
            _ if request.kind.rules.custom => Err(Status::unsupported_media_type(&[JSON, MERGE, APPLY])),
            _ => Err(Status::patch_type_unknown()),
        }
    }

    pub(crate) fn apply(&self, form: Form<'_>, old: &Value) -> Result<Value, Status> {
        let patched = match self {
            Self::Json(patch) => patch.apply(old),
            Self::Merge(patch) => merge_patch(old, patch),
            Self::Strategic(patch) => strategic_merge_patch(old, patch, form.schema),
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
        let errors: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        match given {
            Some(given) if !errors.is_empty() => Err(self.refusal(&given, &decode::strict_error(&errors))),
            _ => {
                if validation == FieldValidation::Warn {
                    errors.into_iter().for_each(|error| request.warn(error));
                }
                Ok(())
            }
        }
    }

    fn refusal(&self, patched: &Value, why: &str) -> Status {
        let value = match self {
            Self::Strategic(patch) => go_text::display(patch),
            Self::Json(_) | Self::Merge(_) => go_text::json(patched),
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
    let name = object_meta::text(object_meta::of(object), "name");
    if name != request.about.name {
        return Err(Status::name_mismatch(name, &request.about.name));
    }
    if object_meta::of(object).get("namespace") != object_meta::of(old).get("namespace") {
        return Err(Status::namespace_mismatch());
    }
    Ok(())
}

/// Server-side apply: the object becomes what the manager wants of it, and is created if need be.
async fn apply(request: &Request, options: &WriteOptions) -> Result<Response<Body>, Status> {
    let config = configuration(request, options, &request.kind.gvk)?;
    let (manager, force) = (options.field_manager.as_str(), options.force.unwrap_or(false));
    let about = &request.about;
    let exists = request.cluster.find(&request.kind, &about.namespace, &about.name).await?.is_some();
    if !exists && about.subresource.is_empty() {
        let applied = prepare::with_field_manager(request, |fields| {
            fields.apply(None, &config, manager, force, now())
        })?;
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

/// What is applied, if it may be applied to an object of this kind and the request's name.
pub(crate) fn configuration(
    request: &Request,
    options: &WriteOptions,
    kind: &GroupVersionKind,
) -> Result<Value, Status> {
    let decoded = decode::yaml_or_json(&request.body)
        .map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))?;
    if !decoded.value.is_object() {
        return Err(Status::bad_request("error decoding YAML: the body is not an object"));
    }
    report_duplicates(request, &decoded, options.field_validation)?;
    let mut config = decoded.value;
    check_target(request, &mut config, &kind.api_version())?;
    Ok(config)
}

/// A key that comes twice is told as asked; the last one counts.
fn report_duplicates(
    request: &Request,
    decoded: &Decoded,
    validation: FieldValidation,
) -> Result<(), Status> {
    let errors = decoded.strict_errors(&request.body, Vec::new(), StrictOrder::DuplicatesFirst);
    match validation {
        FieldValidation::Strict if !errors.is_empty() => {
            let told = errors.join(", ");
            Err(Status::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: {told}"
            )))
        }
        FieldValidation::Warn => {
            errors.into_iter().for_each(|error| request.warn(error));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// An applied object names what it is applied to, and says nothing of who owns what.
fn check_target(request: &Request, config: &mut Value, expected: &str) -> Result<(), Status> {
    let meta = object_meta::of(config);
    if meta.get("managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let name = object_meta::text(meta, "name");
    if !name.is_empty() && name != request.about.name {
        return Err(Status::name_mismatch(name, &request.about.name));
    }
    let found = config.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if found != expected {
        return Err(Status::bad_request(format!(
            "the API version in the data ({found}) does not match the expected API version ({expected})"
        )));
    }
    prepare::meta(config).insert("name".into(), request.about.name.clone().into());
    prepare::set_namespace(request, config)
}
