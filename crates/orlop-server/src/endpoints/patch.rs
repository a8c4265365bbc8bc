//! Patch: JSON patch, merge patch, strategic merge patch and apply, all by the compare-and-swap of `update`.
//!
//! Errors of a patch are reported once there is an object to patch: a missing object is NotFound first.

use http::Response;
use orlop_api::{
    decode::{self, DecodeError, StrictOrder},
    field_error::{FieldError, FieldPath},
    go_text,
    group_version::{GroupKind, GroupVersion, GroupVersionKind},
    object_meta,
    options::FieldValidation,
    patch::{JsonPatch, PatchError, merge_patch, strategic_merge_patch},
    schema::{check_types, convert_types},
    status::Status,
};
use serde_json::{Map, Value};

use super::{
    Request,
    apply::apply,
    decoder::{self, BodySchema},
    prepare,
    update::{check_name, complete, require_version, write},
};
use crate::object::metadata_mut;
use crate::{
    http::{
        body::Body,
        negotiation::{APPLY, content_type},
    },
    request::options::WriteOptions,
};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

pub(crate) async fn patch(request: &Request) -> Result<Response<Body>, Status> {
    let media_type = content_type(&request.headers);
    if let Some(audit) = &request.audit {
        audit.request_patch(|| {
            decode::yaml_or_json(&request.body).ok().map(|body| body.value.to_string().into())
        });
    }
    let options = WriteOptions::of_patch(&request.query, media_type == APPLY)?;
    if media_type == APPLY {
        return apply(request, &options).await;
    }
    let patch = Patch::read(request, media_type, options.field_validation)?;
    let body_schema = BodySchema::of(request, &request.kind.gvk)?;
    let manager = options.manager(request.user_agent());
    let written = write(request, options.dry_run, |old| {
        let mut object = patch.apply(request, body_schema, &request.kind.gvk, old)?;
        patch.check(request, body_schema, &mut object, options.field_validation)?;
        check_name(request, &object)?;
        prepare::set_namespace(request, &mut object)?;
        // Without a resourceVersion, the patch applies to any version.
        if object_meta::of(&object).get("resourceVersion") == object_meta::of(old).get("resourceVersion") {
            metadata_mut(&mut object).remove("resourceVersion");
        } else {
            require_version(request, &object)?;
        }
        complete(request, old, object, Some(&manager))
    })
    .await?;
    written.answer(request, 200).await
}

/// A decoded JSON, merge or strategic merge patch.
pub(crate) struct Patch {
    change: Result<Change, Status>,
    /// Strict decoding errors of the patch itself.
    strict_errors: Vec<String>,
}

enum Change {
    Json(JsonPatch),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    /// Decodes the patch of a request. A malformed patch is reported when it is applied.
    pub(crate) fn read(
        request: &Request,
        media_type: &str,
        validation: FieldValidation,
    ) -> Result<Self, Status> {
        let custom = request.kind.flags.custom;
        match media_type {
            JSON | MERGE => {}
            STRATEGIC if !custom => {}
            _ if custom => return Err(Status::unsupported_media_type(&[JSON, MERGE, APPLY])),
            _ => return Err(Status::patch_type_unknown()),
        }
        let mut strict_errors = Vec::new();
        let change = Change::decode(&request.body, media_type, validation, &mut strict_errors);
        Ok(Self { change, strict_errors })
    }

    /// Applies the patch to an object of a kind.
    pub(crate) fn apply(
        &self,
        request: &Request,
        body_schema: BodySchema<'_>,
        kind: &GroupVersionKind,
        old: &Value,
    ) -> Result<Value, Status> {
        let change = self.change.as_ref().map_err(Status::clone)?;
        let mut patched = match change {
            Change::Json(patch) => patch.apply(old),
            Change::Merge(patch) => merge_patch(old, patch),
            Change::Strategic(patch) => strategic_merge_patch(old, patch, body_schema.schema),
        }?;
        if let Change::Strategic(_) = change {
            convert_types(&mut patched, body_schema.schema)
                .map_err(|error| self.refusal(&patched, &error.to_string()))?;
            if let Value::Object(map) = &mut patched {
                // A strategic merge cannot change the kind.
                name_kind(map, kind);
            }
        }
        self.check_kind(request, body_schema, kind, &mut patched)?;
        Ok(patched)
    }

    /// Checks that the patch did not change the kind.
    fn check_kind(
        &self,
        request: &Request,
        body_schema: BodySchema<'_>,
        kind: &GroupVersionKind,
        patched: &mut Value,
    ) -> Result<(), Status> {
        if let Some(why) = undecodable_kind(patched, body_schema.custom) {
            return Err(self.refusal(patched, &why));
        }
        let text = |field: &str| patched.get(field).and_then(Value::as_str).unwrap_or_default();
        let (api_version, name) = (text("apiVersion"), text("kind"));
        if api_version.is_empty() {
            // Without an apiVersion, Go decodes an empty object.
            return Err(Status::name_undeterminable(&request.attributes.name));
        }
        let Ok(version) = GroupVersion::parse(api_version) else {
            return Err(self.refusal(patched, &format!("unexpected GroupVersion string: {api_version}")));
        };
        let found = version.with_kind(if name.is_empty() { &kind.kind } else { name });
        if found == *kind {
            if let Value::Object(map) = patched {
                name_kind(map, kind);
            }
            return Ok(());
        }
        if body_schema.custom {
            let must_be = |field: &str, found: &str, wanted: &str| {
                (found != wanted)
                    .then(|| FieldError::invalid(&FieldPath::root(field), found, format!("must be {wanted}")))
            };
            let errors = [
                must_be("kind", &found.kind, &kind.kind),
                must_be("apiVersion", api_version, &kind.api_version()),
            ];
            let errors: Vec<FieldError> = errors.into_iter().flatten().collect();
            return Err(Status::invalid(&found.group_kind(), &request.attributes.name, &errors));
        }
        if !decoder::is_registered(request, &found) {
            let why = format!(
                "no kind {:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:110\"",
                found.kind
            );
            return Err(self.refusal(patched, &why));
        }
        let package = if kind.group.is_empty() { "core" } else { &kind.group };
        let package = package.split('.').next().unwrap_or_default();
        let why = format!(
            "converting ({}.{}) to ({package}.{}): unknown conversion",
            found.version, found.kind, kind.kind
        );
        Err(self.refusal(patched, &why))
    }

    /// Checks the patched object against the schema. Unknown fields are dropped and reported as fieldValidation says.
    pub(crate) fn check(
        &self,
        request: &Request,
        body_schema: BodySchema<'_>,
        patched: &mut Value,
        validation: FieldValidation,
    ) -> Result<(), Status> {
        // The result of a strategic merge has been converted.
        if !body_schema.custom && !matches!(self.change, Ok(Change::Strategic(_))) {
            check_types(patched, body_schema.schema)
                .map_err(|mismatch| self.refusal(patched, &mismatch.to_string()))?;
        }
        let given = (validation == FieldValidation::Strict).then(|| patched.clone());
        let unknown = match body_schema.prune(patched) {
            Ok(unknown) => unknown,
            Err(error) => return Err(self.refusal(patched, &error.detail)),
        };
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
            Ok(Change::Strategic(patch)) => go_text::display(patch),
            _ => go_text::json(patched),
        };
        let error = FieldError::invalid(&FieldPath::root("patch"), value, why);
        Status::invalid(&GroupKind::default(), "", &[error])
    }
}

impl Change {
    fn decode(
        body: &[u8],
        media_type: &str,
        validation: FieldValidation,
        strict_errors: &mut Vec<String>,
    ) -> Result<Self, Status> {
        let strictly = validation != FieldValidation::Ignore;
        // Only strict decoding prefixes its errors.
        let refused = |why: &str| {
            if strictly && media_type != STRATEGIC {
                decoder::undecodable_patch(why)
            } else {
                Status::bad_request(why)
            }
        };
        let decoded = decode::json(body).map_err(|error| match error {
            DecodeError::Json(_) => Status::bad_request("invalid JSON patch"),
            other => refused(&other.to_string()),
        })?;
        if media_type == JSON {
            let patch = JsonPatch::read(decoded, body, strictly).map_err(|error| match error {
                PatchError::Malformed(why) => refused(&why),
                other => Status::from(other),
            })?;
            strict_errors.extend_from_slice(patch.strict_errors());
            return Ok(Self::Json(patch));
        }
        *strict_errors = decoded.strict_errors(body, Vec::new(), StrictOrder::DuplicatesFirst);
        match decoded.value {
            Value::Null if media_type == STRATEGIC => Ok(Self::Strategic(Value::Object(Map::new()))),
            value @ Value::Object(_) if media_type == STRATEGIC => Ok(Self::Strategic(value)),
            value if media_type == MERGE && (value.is_object() || value.is_null() || !strictly) => {
                Ok(Self::Merge(value))
            }
            value => {
                let found = go_text::json_type(&value);
                let expected = "Go value of type map[string]interface {}";
                Err(refused(&format!("json: cannot unmarshal {found} into {expected}")))
            }
        }
    }
}

/// Returns Go's error for a patched object without a readable kind.
fn undecodable_kind(patched: &Value, custom: bool) -> Option<String> {
    let Value::Object(map) = patched else {
        return Some(decoder::not_an_object(patched));
    };
    if let Some(why) = decoder::unreadable_kind(patched) {
        return Some(why);
    }
    let is_absent = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default().is_empty();
    if custom && is_absent("kind") {
        return Some(format!("Object 'Kind' is missing in '{}'", go_text::json(patched)));
    }
    if custom && is_absent("apiVersion") {
        return Some("Object 'apiVersion' is missing in 'object has no apiVersion field'".to_owned());
    }
    None
}

fn name_kind(object: &mut Map<String, Value>, kind: &GroupVersionKind) {
    object.insert("apiVersion".into(), kind.api_version().into());
    object.insert("kind".into(), kind.kind.clone().into());
}
