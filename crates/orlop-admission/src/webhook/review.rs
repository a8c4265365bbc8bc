//! AdmissionReview: the request that is sent to a webhook, and its response.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use orlop_api::{
    decode, go_text,
    group_version::{GroupVersionKind, GroupVersionResource},
    user::UserInfo,
};
use serde::Serialize;
use serde_json::Value;

use crate::{AdmissionRequest, matching::Match};

/// Version of AdmissionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1beta1,
}

impl ReviewVersion {
    /// Returns the first of a webhook's versions that is known.
    pub(super) fn first_known(versions: &[String]) -> Option<Self> {
        versions.iter().find_map(|version| match version.as_str() {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1beta1),
            _ => None,
        })
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

#[derive(Serialize)]
struct Review<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    request: ReviewRequest<'a>,
}

#[derive(Serialize)]
struct ReviewRequest<'a> {
    uid: &'a str,
    #[serde(flatten)]
    attributes: ReviewAttributes<'a>,
    object: Option<&'a Value>,
    #[serde(rename = "oldObject")]
    old_object: Option<&'a Value>,
    #[serde(rename = "dryRun")]
    dry_run: bool,
    options: &'a Value,
}

/// Attributes of a request, as in AdmissionReview and as the variable `request` of expressions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewAttributes<'a> {
    kind: Kind<'a>,
    resource: Resource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: &'a str,
    request_kind: Kind<'a>,
    request_resource: Resource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'static str,
    user_info: User<'a>,
}

#[derive(Serialize)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

impl<'a> From<&'a GroupVersionKind> for Kind<'a> {
    fn from(GroupVersionKind { group, version, kind }: &'a GroupVersionKind) -> Self {
        Self { group, version, kind }
    }
}

#[derive(Serialize)]
struct Resource<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
}

impl<'a> From<&'a GroupVersionResource> for Resource<'a> {
    fn from(GroupVersionResource { group, version, resource }: &'a GroupVersionResource) -> Self {
        Self { group, version, resource }
    }
}

#[derive(Serialize)]
struct User<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

impl<'a> From<&'a UserInfo> for User<'a> {
    fn from(UserInfo { name, uid, groups, extra }: &'a UserInfo) -> Self {
        Self { username: name, uid, groups, extra }
    }
}

impl<'a> ReviewAttributes<'a> {
    fn new(
        request: &'a AdmissionRequest<'_>,
        resource: &'a GroupVersionResource,
        matched: &'a Match,
    ) -> Self {
        Self {
            kind: (&matched.kind).into(),
            resource: (&matched.resource).into(),
            sub_resource: request.subresource(),
            request_kind: request.kind.into(),
            request_resource: resource.into(),
            request_sub_resource: request.subresource(),
            name: &request.name,
            namespace: request.review_namespace(),
            operation: request.operation.name(),
            user_info: (&*request.attributes.user).into(),
        }
    }
}

/// Encodes an AdmissionReview with a request. The objects are those of the matched version.
pub(super) fn encode(
    version: ReviewVersion,
    uid: &str,
    request: &AdmissionRequest<'_>,
    resource: &GroupVersionResource,
    matched: &Match,
    objects: (Option<&Value>, Option<&Value>),
) -> Bytes {
    let options = (request.options)();
    let (object, old_object) = objects;
    let review = Review {
        kind: "AdmissionReview",
        api_version: version.api_version(),
        request: ReviewRequest {
            uid,
            attributes: ReviewAttributes::new(request, resource, matched),
            object,
            old_object,
            dry_run: request.dry_run,
            options: &options,
        },
    };
    // Only maps whose keys are not strings fail to encode, and there are none.
    serde_json::to_vec(&review).unwrap_or_default().into()
}

/// Returns the value of the variable `request` of expressions.
pub(crate) fn request_variable(
    request: &AdmissionRequest<'_>,
    resource: &GroupVersionResource,
    matched: &Match,
) -> Value {
    let attributes = ReviewAttributes::new(request, resource, matched);
    let mut variable = serde_json::to_value(attributes).unwrap_or_default();
    variable["dryRun"] = request.dry_run.into();
    variable["options"] = (request.options)();
    variable
}

/// The response of a webhook.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Response {
    pub(super) allowed: bool,
    /// `status`: the reason of a denial.
    pub(super) result: Option<Value>,
    /// JSON patch; empty for none.
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) audit_annotations: BTreeMap<String, String>,
    pub(super) warnings: Vec<String>,
}

/// Error of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResponseError {
    /// The body is not an AdmissionReview.
    Undecodable(String),
    /// The review is not a response to the request.
    Invalid(String),
}

/// Decodes a webhook's answer, and verifies that it is one to the request with this uid.
pub(super) fn decode(
    version: ReviewVersion,
    uid: &str,
    mutating: bool,
    body: &[u8],
) -> Result<Response, ResponseError> {
    use ResponseError::{Invalid, Undecodable};
    if body.is_empty() {
        let why = "0-length response with status code: 200 and content type: ";
        return Err(Undecodable(why.to_owned()));
    }
    let review = decode::json(body)
        .map_err(|error| Undecodable(format!("couldn't get version/kind; json parse error: {error}")))?
        .value;
    if !review.is_object() {
        let found = go_text::json_type(&review);
        return Err(Undecodable(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct \
             {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )));
    }
    let fields = Fields { response: &review["response"] };
    let (allowed, response_uid) = (fields.flag("allowed"), fields.text("uid"));
    let (patch, patch_type) = (fields.text("patch"), fields.text("patchType"));
    let (annotations, warnings) = (fields.annotations(), fields.warnings());
    let (allowed, response_uid) = (allowed.map_err(Undecodable)?, response_uid.map_err(Undecodable)?);
    let (patch, patch_type) = (patch.map_err(Undecodable)?, patch_type.map_err(Undecodable)?);
    let patch = STANDARD.decode(patch.unwrap_or_default());
    let patch = patch.map_err(|_| Undecodable("illegal base64 data at input byte 0".to_owned()))?;
    let result = fields.result().map_err(Undecodable)?;
    let (audit_annotations, warnings) = (annotations.map_err(Undecodable)?, warnings.map_err(Undecodable)?);
    if !review["response"].is_object() {
        return Err(Invalid("webhook response was absent".to_owned()));
    }
    let mut response = Response { allowed, result, audit_annotations, warnings, ..Response::default() };
    if version == ReviewVersion::V1beta1 {
        // Neither the kind nor the uid was ever verified in v1beta1.
        if mutating && !patch.is_empty() {
            (response.patch, response.patch_type) = (patch, "JSONPatch".to_owned());
        }
        return Ok(response);
    }
    let response_uid = response_uid.unwrap_or_default();
    if response_uid != uid {
        return Err(Invalid(format!(
            "expected response.uid={}, got {}",
            go_text::quote(uid),
            go_text::quote(&response_uid)
        )));
    }
    let (expected, found) = ("admission.k8s.io/v1, Kind=AdmissionReview", GroupVersionKind::of(&review));
    if found != GroupVersionKind::new("admission.k8s.io", "v1", "AdmissionReview") {
        let GroupVersionKind { group, version, kind } = found;
        return Err(Invalid(format!(
            "expected webhook response of {expected}, got {group}/{version}, Kind={kind}"
        )));
    }
    let problem = match (mutating, patch.is_empty(), &patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, false, Some(of)) if of.is_empty() => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => "",
    };
    if !problem.is_empty() {
        return Err(Invalid(problem.to_owned()));
    }
    (response.patch, response.patch_type) = (patch, patch_type.unwrap_or_default());
    Ok(response)
}

/// Fields of an AdmissionResponse. Their types are checked as Go's decoder does.
struct Fields<'a> {
    response: &'a Value,
}

impl Fields<'_> {
    fn mismatch(name: &str, found: &Value, expected: &str) -> String {
        let found = go_text::json_type(found);
        format!(
            "json: cannot unmarshal {found} into Go struct field AdmissionResponse.response.{name} of type {expected}"
        )
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        match &self.response[name] {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            other => Err(Self::mismatch(name, other, "bool")),
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>, String> {
        match &self.response[name] {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            other => Err(Self::mismatch(name, other, "string")),
        }
    }

    fn result(&self) -> Result<Option<Value>, String> {
        match &self.response["status"] {
            Value::Null => Ok(None),
            result @ Value::Object(_) => Ok(Some(result.clone())),
            other => Err(Self::mismatch("status", other, "v1.Status")),
        }
    }

    fn annotations(&self) -> Result<BTreeMap<String, String>, String> {
        match &self.response["auditAnnotations"] {
            Value::Null => Ok(BTreeMap::new()),
            Value::Object(annotations) => {
                let text = |value: &Value| match value {
                    Value::Null => Ok(String::new()),
                    Value::String(text) => Ok(text.clone()),
                    other => Err(Self::mismatch("auditAnnotations", other, "string")),
                };
                annotations.iter().map(|(key, value)| Ok((key.clone(), text(value)?))).collect()
            }
            other => Err(Self::mismatch("auditAnnotations", other, "map[string]string")),
        }
    }

    fn warnings(&self) -> Result<Vec<String>, String> {
        match &self.response["warnings"] {
            Value::Null => Ok(Vec::new()),
            Value::Array(warnings) => {
                let text = |value: &Value| match value {
                    Value::Null => Ok(String::new()),
                    Value::String(text) => Ok(text.clone()),
                    other => Err(Self::mismatch("warnings", other, "string")),
                };
                warnings.iter().map(text).collect()
            }
            other => Err(Self::mismatch("warnings", other, "[]string")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decoded(mutating: bool, body: &Value) -> Result<Response, ResponseError> {
        decode(ReviewVersion::V1, "u", mutating, body.to_string().as_bytes())
    }

    fn review(response: Value) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    #[test]
    fn responses_to_other_requests_are_refused() {
        let invalid = |body: Value| decoded(true, &body).unwrap_err();
        for (body, why) in [
            (review(Value::Null), "webhook response was absent"),
            (review(json!({"uid": "x", "allowed": true})), r#"expected response.uid="u", got "x""#),
            (
                json!({"response": {"uid": "u"}}),
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
            ),
            (
                review(json!({"uid": "u", "allowed": true, "patch": "W10="})),
                "webhook returned response.patch but not response.patchType",
            ),
            (
                review(json!({"uid": "u", "allowed": true, "patchType": "JSONPatch"})),
                "webhook returned response.patchType but not response.patch",
            ),
        ] {
            assert_eq!(invalid(body), ResponseError::Invalid(why.to_owned()));
        }
        let patched = review(json!({"uid": "u", "patch": "W10=", "patchType": "JSONPatch"}));
        assert_eq!(decoded(true, &patched).unwrap().patch, b"[]");
        let why = "validating webhook may not return response.patch".to_owned();
        assert_eq!(decoded(false, &patched), Err(ResponseError::Invalid(why)));
    }

    #[test]
    fn v1beta1_verifies_neither_uid_nor_kind() {
        let body = json!({"response": {"uid": "x", "allowed": true, "patch": "W10="}}).to_string();
        let response = decode(ReviewVersion::V1beta1, "u", true, body.as_bytes()).unwrap();
        assert_eq!((response.allowed, response.patch_type.as_str()), (true, "JSONPatch"));
        assert!(decode(ReviewVersion::V1beta1, "u", false, body.as_bytes()).unwrap().patch.is_empty());
    }

    #[test]
    fn nonsense_is_not_decoded() {
        for (body, start) in [
            ("", "0-length response with status code: 200 and content type: "),
            ("oops", "couldn't get version/kind; json parse error: "),
            ("[]", "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value"),
            (
                r#"{"response": {"allowed": "yes"}}"#,
                "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
            ),
            (r#"{"response": {"patch": "%"}}"#, "illegal base64 data"),
            (r#"{"response": {"warnings": "w"}}"#, "json: cannot unmarshal string into Go struct field"),
        ] {
            let error = decode(ReviewVersion::V1, "u", true, body.as_bytes());
            let Err(ResponseError::Undecodable(why)) = error else { unreachable!("{body} is nonsense") };
            assert!(why.starts_with(start), "{why}");
        }
    }
}
