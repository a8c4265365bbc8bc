//! Decodes request bodies into objects.

use orlop_api::{
    decode::{self, Decoded, StrictOrder},
    field_error::{FieldError, FieldPath},
    go_text,
    group_version::{GroupKind, GroupVersion, GroupVersionKind},
    object_meta,
    options::FieldValidation,
    protobuf::{self, DecodeError, Envelope},
    schema::{Schema, builtin, check_types},
    status::Status,
};
use serde_json::{Value, json};

use super::Request;
use crate::{
    http::negotiation::{MEDIA_TYPES, content_type},
    registry::{self, has_protobuf},
};

/// Decodes a body as an object of the request's kind. Unknown fields are dropped and reported as fieldValidation
/// says.
pub(crate) fn object(request: &Request, validation: FieldValidation) -> Result<Value, Status> {
    decode_as(request, &request.body, &request.kind.gvk.clone(), validation)
}

/// Decodes a body as an object of a kind.
pub(crate) fn decode_as(
    request: &Request,
    body: &[u8],
    expected: &GroupVersionKind,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let decoded = match content_type(&request.headers) {
        "" | "application/json" => decode::json(body),
        "application/yaml" => decode::yaml(body),
        protobuf::MEDIA_TYPE if has_protobuf(&request.kind) => {
            Ok(from_protobuf(request, body, expected)?.into())
        }
        _ => return Err(Status::unsupported_media_type(MEDIA_TYPES)),
    };
    let mut decoded = decoded.map_err(|error| unrecognized(expected, &error.to_string(), body))?;
    if decoded.value.is_null() && !body.is_empty() {
        // Go decodes null into an empty object.
        decoded.value = json!({});
    }
    if !decoded.value.is_object() {
        return Err(Status::unrecognized_body(&expected.kind, &not_an_object(&decoded.value), body));
    }
    if let Some(why) = unreadable_kind(&decoded.value) {
        return Err(Status::unrecognized_body(&expected.kind, &why, body));
    }
    if request.kind.flags.custom && *expected == request.kind.gvk {
        check_custom_kind(&decoded.value, expected, body)?;
    } else {
        check_kind(request, &decoded.value, expected, body)?;
    }
    let object = drop_unknown_fields(request, decoded, body, expected, validation)?;
    if let Some(audit) = &request.audit {
        record(audit, request, expected, &object);
    }
    Ok(object)
}

/// Decodes a body as DeleteOptions.
pub(super) fn delete_options(request: &Request) -> Result<Value, Status> {
    let body = &request.body;
    let unrecognized =
        |error: &dyn ToString| Status::unrecognized_body("DeleteOptions", &error.to_string(), body);
    let value = match content_type(&request.headers) {
        "" | "application/json" => decode::json(body).map_err(|error| unrecognized(&error))?.value,
        "application/yaml" => decode::yaml(body).map_err(|error| unrecognized(&error))?.value,
        protobuf::MEDIA_TYPE => protobuf::decode(body).map_err(|error| unrecognized(&error))?,
        _ => return Err(Status::unsupported_media_type(MEDIA_TYPES)),
    };
    if !value.is_object() {
        return Err(unrecognized(&"they are not an object"));
    }
    Ok(value)
}

/// Records an object in the audit event, with its defaults as Kubernetes does.
fn record(audit: &orlop_audit::Context, request: &Request, expected: &GroupVersionKind, object: &Value) {
    if audit.wants_request_object() && *expected == request.kind.gvk {
        let mut completed = object.clone();
        request.kind.set_defaults(&mut completed);
        audit.request_object(&completed);
    } else {
        audit.request_object(object);
    }
}

/// Returns the error of a patch that cannot be decoded.
pub(super) fn undecodable_patch(why: &str) -> Status {
    Status::bad_request(format!("error decoding patch: {why}"))
}

/// Returns Go's error for a value that is not an object.
pub(super) fn not_an_object(value: &Value) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ \
         APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        go_text::json_type(value)
    )
}

/// Returns Go's error for an object whose apiVersion or kind is not a string.
pub(super) fn unreadable_kind(object: &Value) -> Option<String> {
    let unreadable = |field: &str| match object.get(field) {
        None | Some(Value::Null | Value::String(_)) => None,
        Some(other) => Some(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} of \
             type string",
            go_text::json_type(other)
        )),
    };
    unreadable("apiVersion").or_else(|| unreadable("kind"))
}

fn unrecognized(expected: &GroupVersionKind, why: &str, body: &[u8]) -> Status {
    let why = format!("couldn't get version/kind; json parse error: {why}");
    Status::unrecognized_body(&expected.kind, &why, body)
}

/// Decodes a protobuf body. Checks the kind first: field numbers of one kind mean other fields in another.
fn from_protobuf(request: &Request, body: &[u8], expected: &GroupVersionKind) -> Result<Value, Status> {
    let unrecognized =
        |error: DecodeError| Status::unrecognized_body(&expected.kind, &error.to_string(), body);
    let envelope = Envelope::open(body).map_err(unrecognized)?;
    let named = json!({"apiVersion": envelope.api_version, "kind": envelope.kind});
    check_kind(request, &named, expected, body)?;
    let entry = protobuf::type_for(&expected.api_version(), &expected.kind)
        .ok_or_else(|| Status::unsupported_media_type(MEDIA_TYPES))?;
    protobuf::decode_as(body, entry).map_err(unrecognized)
}

/// Checks the kind of an object, if it names one.
fn check_kind(
    request: &Request,
    object: &Value,
    expected: &GroupVersionKind,
    body: &[u8],
) -> Result<(), Status> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let api_version = text("apiVersion").map_or_else(|| expected.api_version(), str::to_owned);
    let kind = text("kind").unwrap_or(&expected.kind);
    if kind == expected.kind && api_version == expected.api_version() {
        return Ok(());
    }
    let Ok(version) = GroupVersion::parse(&api_version) else {
        let why = format!("unexpected GroupVersion string: {api_version}");
        return Err(Status::unrecognized_body(&expected.kind, &why, body));
    };
    let found = version.with_kind(kind);
    // `/v1` is another spelling of `v1`.
    if found == *expected {
        return Ok(());
    }
    if !is_registered(request, &found) {
        // Kubernetes names the file of its Go scheme.
        let why = format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        );
        return Err(Status::cannot_decode(&found, &expected.kind, &why));
    }
    if kind == expected.kind {
        return Err(Status::api_version_mismatch(&api_version, &expected.api_version()));
    }
    let why = format!("converting ({kind}) to ({}): unknown conversion", expected.kind);
    Err(Status::cannot_decode(&found, &expected.kind, &why))
}

/// Checks the kind of a custom object, which must name it.
fn check_custom_kind(object: &Value, expected: &GroupVersionKind, body: &[u8]) -> Result<(), Status> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
        return Err(Status::unrecognized_body(&expected.kind, &why, body));
    }
    if !api_version.is_empty() && api_version != expected.api_version() {
        return Err(Status::api_version_mismatch(api_version, &expected.api_version()));
    }
    if kind == expected.kind {
        return Ok(());
    }
    let error = FieldError::invalid(&FieldPath::root("kind"), kind, format!("must be {}", expected.kind));
    let found = GroupKind::new(expected.group.clone(), kind.to_owned());
    Err(Status::invalid(&found, object_meta::text(object_meta::of(object), "name"), &[error]))
}

/// Returns true for a kind that is served, or that only occurs inside others.
pub(super) fn is_registered(request: &Request, kind: &GroupVersionKind) -> bool {
    let kinds = request.cluster.objects.registry.kinds();
    let is_served = kinds.iter().any(|known| {
        let named = known.gvk.kind == kind.kind || known.list_kind == kind.kind;
        named && known.gvk.group == kind.group && known.gvk.version == kind.version
    });
    let is_core = kind.group.is_empty() && kind.version == "v1";
    is_served
        || (is_core && matches!(kind.kind.as_str(), "List" | "Status"))
        || builtin::type_of(&kind.group, &kind.version, &kind.kind).is_some()
}

/// Drops unknown fields, and reports them as fieldValidation says.
fn drop_unknown_fields(
    request: &Request,
    decoded: Decoded,
    body: &[u8],
    expected: &GroupVersionKind,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let mut value = decoded.value.clone();
    let body_schema = BodySchema::of(request, expected)?;
    let refuse = |error: &dyn ToString| Status::cannot_decode(expected, &expected.kind, &error.to_string());
    if !body_schema.custom {
        check_types(&value, body_schema.schema).map_err(|error| refuse(&error))?;
    }
    let unknown = body_schema.prune(&mut value).map_err(|error| refuse(&error))?;
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), expected.api_version().into());
        map.insert("kind".into(), expected.kind.clone().into());
    }
    if validation == FieldValidation::Ignore {
        return Ok(value);
    }
    let order = if request.kind.flags.custom { StrictOrder::DuplicatesFirst } else { StrictOrder::Document };
    let errors = decoded.strict_errors(body, unknown, order);
    match validation {
        FieldValidation::Strict if !errors.is_empty() => {
            Err(Status::cannot_decode(expected, &expected.kind, &decode::strict_error(&errors)))
        }
        _ => {
            decode::strict_warnings(&errors).for_each(|error| request.warn(error));
            Ok(value)
        }
    }
}

/// Schema of the bodies of an endpoint.
#[derive(Clone, Copy)]
pub(crate) struct BodySchema<'a> {
    pub(crate) schema: &'a Schema,
    /// True for the schema of a CustomResourceDefinition.
    pub(crate) custom: bool,
}

impl<'a> BodySchema<'a> {
    /// Returns the schema of the request's kind, or of the built-in kind that its subresource takes.
    pub(crate) fn of(request: &'a Request, kind: &GroupVersionKind) -> Result<Self, Status> {
        if *kind == request.kind.gvk {
            return Ok(Self { schema: request.kind.schema.get(), custom: request.kind.flags.custom });
        }
        let entry = builtin::type_of(&kind.group, &kind.version, &kind.kind)
            .ok_or_else(|| Status::internal(&format!("no type is known for {kind}")))?;
        Ok(Self { schema: entry.schema(), custom: false })
    }

    /// Drops unknown fields, and returns their paths.
    pub(super) fn prune(self, object: &mut Value) -> Result<Vec<String>, FieldError> {
        registry::prune(object, self.schema, self.custom)
    }
}

/// Drops unknown fields that admission added.
pub(crate) fn prune_again(
    request: &Request,
    body_schema: BodySchema<'_>,
    object: &mut Value,
) -> Result<Vec<String>, Status> {
    body_schema.prune(object).map_err(|error| {
        let patch = String::from_utf8_lossy(&request.body).into_owned();
        let error = FieldError::invalid(&FieldPath::root("patch"), patch, error.to_string());
        Status::invalid(&GroupKind::default(), "", &[error])
    })
}
