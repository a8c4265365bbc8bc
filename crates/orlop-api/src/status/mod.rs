//! `metav1.Status` and its constructors.
//!
//! One constructor per reason; each sets the code, reason, message and details
//! of Kubernetes. `details.kind` holds the plural resource for most
//! reasons and the kind for Invalid, as in Kubernetes.

#[cfg(test)]
mod tests;

use crate::field_error::{self, FieldError};
use crate::go_text::quote;
use crate::group_version::{GroupKind, GroupResource, GroupVersionKind};
use serde_json::{Map, Value, json};
use std::fmt;

/// Machine-readable reason of a failed request (metav1.StatusReason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The empty reason.
    Unknown,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Invalid,
    ServerTimeout,
    Timeout,
    TooManyRequests,
    BadRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    InternalError,
    Expired,
    ServiceUnavailable,
}

impl Reason {
    /// All reasons.
    const ALL: [Self; 19] = [
        Self::Unknown,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::AlreadyExists,
        Self::Conflict,
        Self::Gone,
        Self::Invalid,
        Self::ServerTimeout,
        Self::Timeout,
        Self::TooManyRequests,
        Self::BadRequest,
        Self::MethodNotAllowed,
        Self::NotAcceptable,
        Self::RequestEntityTooLarge,
        Self::UnsupportedMediaType,
        Self::InternalError,
        Self::Expired,
        Self::ServiceUnavailable,
    ];

    /// Returns the reason of this text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Invalid => "Invalid",
            Self::ServerTimeout => "ServerTimeout",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::InternalError => "InternalError",
            Self::Expired => "Expired",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }
}

/// A cause: reason, message and field (metav1.StatusCause).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// Details of a Status (metav1.StatusDetails).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

/// A failed request (metav1.Status).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: u16,
    pub reason: Reason,
    pub message: String,
    pub details: Option<Box<Details>>,
    /// `metadata.continue` of an expired list, for an inconsistent continuation.
    pub continue_token: Option<Box<str>>,
    /// Reason of a webhook's own, which is none of [`Reason`].
    pub custom_reason: Option<Box<str>>,
}

impl Status {
    /// Creates a status without details.
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
            custom_reason: None,
        }
    }

    fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        let details = self.details_mut();
        details.group.clone_from(&resource.group);
        details.kind.clone_from(&resource.resource);
        name.clone_into(&mut details.name);
        self
    }

    /// Returns the reason as text.
    pub fn reason_text(&self) -> &str {
        self.custom_reason.as_deref().unwrap_or(self.reason.as_str())
    }

    /// Returns the details, created if absent.
    pub fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    /// Sets retryAfterSeconds; the server also sends `Retry-After`.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details_mut().retry_after_seconds = seconds;
        self
    }

    pub fn with_cause(mut self, reason: &str, message: impl Into<String>, field: impl Into<String>) -> Self {
        let cause = Cause { reason: reason.to_owned(), message: message.into(), field: field.into() };
        self.details_mut().causes.push(cause);
        self
    }

    pub fn retry_after_seconds(&self) -> u32 {
        self.details.as_ref().map_or(0, |details| details.retry_after_seconds)
    }

    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(404, Reason::NotFound, format!("{resource} {} not found", quote(name)))
            .about(resource, name)
    }

    /// 404 of an unknown path.
    pub fn resource_unknown() -> Self {
        let mut status = Self::new(404, Reason::NotFound, "the server could not find the requested resource");
        status.details_mut();
        status
    }

    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} already exists", quote(name));
        Self::new(409, Reason::AlreadyExists, message).about(resource, name)
    }

    /// 409: the name is taken by a terminating object.
    pub fn already_exists_terminating(resource: &GroupResource, name: &str) -> Self {
        let mut status = Self::already_exists(resource, name);
        status.message.insert_str(0, "object is being deleted: ");
        status
    }

    pub fn generate_name_conflict(resource: &GroupResource, name: &str) -> Self {
        let mut status = Self::already_exists(resource, name).retry_after(1);
        status.message.push_str(", the server was not able to generate a unique name for the object");
        status
    }

    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name));
        Self::new(409, Reason::Conflict, message).about(resource, name)
    }

    /// 409: the object was modified since the client's read.
    pub fn conflict_modified(resource: &GroupResource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 409 of a delete whose precondition fails. `what` is `UID` or `ResourceVersion`.
    pub fn conflict_delete(kind: &GroupKind, name: &str, what: &str, asked: &str, found: &str) -> Self {
        let fate = if what == "UID" { "been deleted and then recreated" } else { "been modified" };
        let why = format!(
            "the {what} in the precondition ({asked}) does not match the {what} in record ({found}). \
             The object might have {fate}"
        );
        Self::conflict(&GroupResource::new(kind.group.clone(), kind.kind.clone()), name, &why)
    }

    /// 409 of a failed precondition. `what` is `UID` or `ResourceVersion`.
    pub fn conflict_precondition(
        resource: &GroupResource,
        name: &str,
        what: &str,
        asked: &str,
        found: &str,
    ) -> Self {
        let why =
            format!("Precondition failed: {what} in precondition: {asked}, {what} in object meta: {found}");
        Self::conflict(resource, name, &why)
    }

    /// 409 of an apply with conflicts.
    pub fn apply_conflict(causes: Vec<Cause>, message: String) -> Self {
        let mut status = Self::new(409, Reason::Conflict, message);
        status.details_mut().causes = causes;
        status
    }

    pub fn invalid(kind: &GroupKind, name: &str, errors: &[FieldError]) -> Self {
        let mut message = format!("{kind} {} is invalid", quote(name));
        let errors = FieldError::in_order(errors);
        if !errors.is_empty() {
            message.push_str(": ");
            message.push_str(&field_error::aggregate(&errors));
        }
        let mut status = Self::new(422, Reason::Invalid, message);
        let details = status.details_mut();
        details.group.clone_from(&kind.group);
        details.kind.clone_from(&kind.kind);
        name.clone_into(&mut details.name);
        details.causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.kind.reason().to_owned(),
                message: error.body(),
                field: error.field.to_string(),
            })
            .collect();
        status
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }

    pub fn name_mismatch(in_object: &str, in_url: &str) -> Self {
        Self::bad_request(format!(
            "the name of the object ({in_object}) does not match the name on the URL ({in_url})"
        ))
    }

    /// 400: the object has no name.
    pub fn name_undeterminable(in_url: &str) -> Self {
        Self::bad_request(format!(
            "the name of the object ({in_url} based on URL) was undeterminable: name must be provided"
        ))
    }

    pub fn namespace_mismatch() -> Self {
        Self::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )
    }

    pub fn api_version_mismatch(in_data: &str, expected: &str) -> Self {
        Self::bad_request(format!(
            "the API version in the data ({in_data}) does not match the expected API version ({expected})"
        ))
    }

    /// 400: a body of a known kind does not decode as the requested kind.
    pub fn cannot_decode(found: &GroupVersionKind, expected_kind: &str, error: &str) -> Self {
        let version = quote(&found.version);
        Self::bad_request(format!(
            "{} in version {version} cannot be handled as a {expected_kind}: {error}",
            found.kind
        ))
    }

    /// 400: a body without a kind.
    pub fn unrecognized_body(expected_kind: &str, error: &str, body: &[u8]) -> Self {
        let summary = summarize(body);
        Self::bad_request(format!(
            "the object provided is unrecognized (must be of type {expected_kind}): {error} ({summary})"
        ))
    }

    pub fn unauthorized() -> Self {
        Self::new(401, Reason::Unauthorized, "Unauthorized")
    }

    /// 403 of a resource, or of a path if the resource is empty.
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = if resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        Self::new(403, Reason::Forbidden, message).about(resource, name)
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Expired, message)
    }

    pub fn too_old_resource_version(asked: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {asked} ({oldest})"))
    }

    /// 410: a list cannot be continued consistently; `token` continues at the newest revision.
    pub fn continue_expired(token: &str) -> Self {
        let mut status = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. \
             You can start a new list without the continue parameter, or use the continue token in this response \
             to retrieve the remainder of the results. Continuing with the provided token results in an \
             inconsistent list - objects that were created, modified, or deleted between the time the first chunk \
             was returned and now may show up in the list.",
        );
        status.continue_token = Some(token.into());
        status
    }

    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Gone, message)
    }

    pub fn method_not_allowed(resource: &GroupResource, action: &str) -> Self {
        let message =
            format!("{action} is not supported on resources of kind {}", quote(&resource.to_string()));
        Self::new(405, Reason::MethodNotAllowed, message).about(resource, "")
    }

    /// 405 of a method that a path does not support.
    pub fn method_unknown() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Self::new(405, Reason::MethodNotAllowed, message);
        status.details_mut();
        status
    }

    /// 415 of an unknown patch type.
    pub fn patch_type_unknown() -> Self {
        let mut status = Self::new(415, Reason::UnsupportedMediaType, "415: Unsupported Media Type");
        status.details_mut();
        status
    }

    /// 406 of content negotiation before routing.
    pub fn no_representation(media_types: &[&str]) -> Self {
        let available = media_types.join(", ");
        let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
        let mut status = Self::new(406, Reason::NotAcceptable, message);
        status.details_mut();
        status
    }

    pub fn not_acceptable(media_types: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", media_types.join(", "));
        Self::new(406, Reason::NotAcceptable, message)
    }

    pub fn unsupported_media_type(media_types: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            media_types.join(", ")
        );
        Self::new(415, Reason::UnsupportedMediaType, message)
    }

    pub fn request_entity_too_large(message: &str) -> Self {
        let message = format!("Request entity too large: {message}");
        Self::new(413, Reason::RequestEntityTooLarge, message)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, Reason::TooManyRequests, message).retry_after(retry_after_seconds)
    }

    pub fn timeout(message: &str, retry_after_seconds: u32) -> Self {
        Self::new(504, Reason::Timeout, format!("Timeout: {message}")).retry_after(retry_after_seconds)
    }

    /// 504: the requested revision is in the future.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut status = Self::timeout(&message, 1);
        status = status.with_cause("ResourceVersionTooLarge", "Too large resource version", "");
        status
    }

    pub fn server_timeout(resource: &GroupResource, operation: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        Self::new(500, Reason::ServerTimeout, message)
            .about(resource, operation)
            .retry_after(retry_after_seconds)
    }

    pub fn internal(error: &str) -> Self {
        Self::new(500, Reason::InternalError, format!("Internal error occurred: {error}"))
            .with_cause("", error, "")
    }

    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, Reason::ServiceUnavailable, message)
    }

    /// 500 without a reason, with the plain message.
    pub fn plain(message: impl Into<String>) -> Self {
        Self::new(500, Reason::Unknown, message)
    }

    /// Returns the Success status of an immediate deletion.
    pub fn deleted(resource: &GroupResource, name: &str, uid: &str) -> Value {
        let mut details = Map::new();
        for (key, text) in
            [("name", name), ("group", &resource.group), ("kind", &resource.resource), ("uid", uid)]
        {
            insert_text(&mut details, key, text);
        }
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }

    /// Returns the JSON.
    pub fn to_value(&self) -> Value {
        let mut object = Map::new();
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            insert_text(&mut metadata, "continue", token);
        }
        object.insert("kind".into(), "Status".into());
        object.insert("apiVersion".into(), "v1".into());
        object.insert("metadata".into(), Value::Object(metadata));
        object.insert("status".into(), "Failure".into());
        insert_text(&mut object, "message", &self.message);
        insert_text(&mut object, "reason", self.reason_text());
        if let Some(details) = &self.details {
            object.insert("details".into(), details.to_value());
        }
        object.insert("code".into(), self.code.into());
        Value::Object(object)
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut object = Map::new();
        for (key, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            insert_text(&mut object, key, text);
        }
        if !self.causes.is_empty() {
            object.insert("causes".into(), self.causes.iter().map(Cause::to_value).collect());
        }
        if self.retry_after_seconds > 0 {
            object.insert("retryAfterSeconds".into(), self.retry_after_seconds.into());
        }
        Value::Object(object)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut object = Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            insert_text(&mut object, key, text);
        }
        Value::Object(object)
    }
}

/// Omits empty strings, as Go's `omitempty` does.
fn insert_text(object: &mut Map<String, Value>, key: &str, text: &str) {
    if !text.is_empty() {
        object.insert(key.to_owned(), text.into());
    }
}

/// Returns the first bytes of a body as text; base64 if it is not JSON.
fn summarize(body: &[u8]) -> String {
    const LENGTH_MAX: usize = 30;
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let head = body.get(..LENGTH_MAX).unwrap_or(body);
    let tail = if body.len() > LENGTH_MAX { " ..." } else { "" };
    match std::str::from_utf8(head) {
        Ok(text) if text.starts_with('{') => format!("{text}{tail}"),
        _ => {
            let hex: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{tail}")
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}
