//! TokenRequest: issues service account tokens.

use http::Response;
use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::{GroupResource, GroupVersion, GroupVersionKind},
    object_meta,
    status::Status,
    time::Time,
};
use serde_json::{Value, json};

use crate::{
    endpoints::{Request, admission, answer, decoder},
    http::body::Body,
    object::{new_uid, now},
    request::{Attributes, options::WriteOptions},
};

/// Minimum, default and maximum lifetime of a token.
const SECONDS_MIN: i64 = 600;
const SECONDS: i64 = 3600;
const SECONDS_MAX: i64 = 1 << 32;

/// Answers a TokenRequest.
pub(super) async fn create(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "CreateOptions")?;
    let kind = GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
    let mut token_request = decoder::decode_as(request, &request.body, &kind, options.field_validation)?;
    let attributes = &request.attributes;
    admission::mutate_virtual(request, &mut token_request).await?;
    check_account(&token_request, attributes)?;
    let account =
        request.cluster.objects.object(&request.kind, &attributes.namespace, &attributes.name).await?;
    let uid = object_meta::text(object_meta::of(&account), "uid").to_owned();
    let asked = object_meta::text(object_meta::of(&token_request), "uid");
    if !asked.is_empty() && asked != uid {
        let why = format!(
            "the UID in the token request ({asked}) does not match the UID of the service account ({uid})"
        );
        let kind = GroupResource::new(kind.group.clone(), kind.kind.clone());
        return Err(Status::conflict(&kind, &attributes.name, &why));
    }
    let mut seconds =
        token_request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(SECONDS);
    let error = check_seconds(seconds);
    if let Some(error) = error {
        return Err(Status::invalid(&kind.group_kind(), "", &[error]));
    }
    let issuer = request.cluster.issuer();
    let mut audiences: Vec<String> = token_request
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|audience| audience.as_str().map(str::to_owned))
        .collect();
    if audiences.is_empty() {
        audiences.extend_from_slice(request.cluster.audiences());
    }
    let issued = now().unix_seconds;
    // A policy about tokens sees what will be in them.
    token_request["metadata"] = json!({
        "name": attributes.name, "namespace": attributes.namespace, "uid": uid, "creationTimestamp": Time::from_unix(issued).to_string(),
    });
    token_request["spec"]["audiences"] = json!(audiences);
    token_request["spec"]["expirationSeconds"] = seconds.into();
    admission::validate_virtual(request, &token_request).await?;
    let bound = bound_to(request, &token_request).await?;
    if let Some(maximum) = issuer.max_expiration_seconds().filter(|maximum| seconds > *maximum) {
        request
            .warnings
            .add(format!("requested expiration of {seconds} seconds shortened to {maximum} seconds"));
        seconds = maximum;
    }
    // Clients of pods that do not read their token again are given time: only a warning is due at first.
    let is_for_api = audiences.iter().all(|audience| request.cluster.audiences().contains(audience));
    let is_pod = bound.as_ref().is_some_and(|bound| bound.claim == "pod");
    let extended = issuer.extended_expiration_seconds(seconds).filter(|_| is_pod && is_for_api);
    let expires = issued + seconds;
    let mut private = json!({
        "namespace": attributes.namespace,
        "serviceaccount": {"name": attributes.name, "uid": uid},
    });
    if let Some(bound) = &bound {
        private[bound.claim] = claim_of(&bound.object);
        if let Some(node) = &bound.node {
            private["node"] = node.clone();
        }
    }
    if extended.is_some() {
        private["warnafter"] = (issued + seconds).into();
    }
    let id = new_uid();
    let claims = json!({
        "iss": issuer.name(), "sub": format!("system:serviceaccount:{}:{}", attributes.namespace, attributes.name),
        "aud": audiences, "iat": issued, "nbf": issued, "exp": issued + extended.unwrap_or(seconds),
        "jti": id, "kubernetes.io": private,
    });
    let token = issuer
        .sign(&claims)
        .map_err(|error| Status::internal(&format!("failed to generate token: {error}")))?;
    if let Some(audit) = &request.audit {
        // Tells whose requests are made with this token: users of tokens have it in their extra fields.
        audit.annotate("authentication.kubernetes.io/issued-credential-id", format!("JTI={id}"));
    }
    token_request["spec"]["expirationSeconds"] = seconds.into();
    token_request["status"] =
        json!({"token": token, "expirationTimestamp": Time::from_unix(expires).to_string()});
    answer::object(request, 201, token_request)
}

/// Returns an object's name and uid, as a claim.
fn claim_of(object: &Value) -> Value {
    let meta = object_meta::of(object);
    let mut reference = json!({"name": object_meta::text(meta, "name")});
    let uid = object_meta::text(meta, "uid");
    if !uid.is_empty() {
        reference["uid"] = uid.into();
    }
    reference
}

/// Validates the lifetime of a token.
fn check_seconds(seconds: i64) -> Option<FieldError> {
    let path = FieldPath::root("spec").child("expirationSeconds");
    match seconds {
        ..SECONDS_MIN => {
            Some(FieldError::invalid(&path, seconds, "may not specify a duration less than 10 minutes"))
        }
        SECONDS_MIN..=SECONDS_MAX => None,
        _ => Some(FieldError::invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds")),
    }
}

/// An object that a token is bound to.
struct Bound {
    claim: &'static str,
    object: Value,
    /// Claim of the node that a pod is on.
    node: Option<Value>,
}

/// Checks the name and namespace of a TokenRequest, if it has them.
fn check_account(token_request: &Value, attributes: &Attributes) -> Result<(), Status> {
    let path = FieldPath::root("metadata");
    for (field, expected) in [("name", &attributes.name), ("namespace", &attributes.namespace)] {
        let given = object_meta::text(object_meta::of(token_request), field);
        if !given.is_empty() && given != expected {
            let why = format!("must match the service account {field} if specified");
            let error = FieldError::invalid(&path.child(field), given, why);
            let kind = GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
            return Err(Status::invalid(&kind.group_kind(), &attributes.name, &[error]));
        }
    }
    Ok(())
}

/// Returns the object that a token is bound to, if any.
async fn bound_to(request: &Request, asked: &Value) -> Result<Option<Bound>, Status> {
    let Some(reference) = asked.pointer("/spec/boundObjectRef").filter(|reference| !reference.is_null())
    else {
        return Ok(None);
    };
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
    let version = GroupVersion::parse(text("apiVersion")).unwrap_or_default();
    let (resource, claim) = match (version.group.as_str(), text("kind")) {
        ("", "Pod") => ("pods", "pod"),
        ("", "Secret") => ("secrets", "secret"),
        ("", "Node") => ("nodes", "node"),
        (_, kind) => {
            let kind = version.with_kind(kind);
            return Err(Status::bad_request(format!("cannot bind token to object of type {kind}")));
        }
    };
    let kinds = request.cluster.objects.registry.kinds();
    let kind = kinds.get("", "v1", resource).ok_or_else(Status::resource_unknown)?;
    let namespace = if kind.namespaced { request.attributes.namespace.as_str() } else { "" };
    let object = request.cluster.objects.object(kind, namespace, text("name")).await?;
    let account = object.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or_default();
    if claim == "pod" && account != request.attributes.name {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            request.attributes.name
        )));
    }
    let (uid, found) = (text("uid"), object_meta::text(object_meta::of(&object), "uid"));
    if !uid.is_empty() && uid != found {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might \
             have been deleted and then recreated"
        );
        return Err(Status::conflict(&kind.group_resource(), text("name"), &why));
    }
    let node = object.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    let node = match (claim, node) {
        ("pod", node) if !node.is_empty() => {
            let kind = kinds.get("", "v1", "nodes").ok_or_else(Status::resource_unknown)?;
            // A node that is not there is named all the same, without its uid.
            match request.cluster.objects.find(kind, "", node).await? {
                Some(found) => Some(claim_of(&kind.read(&found).await?)),
                None => Some(json!({"name": node})),
            }
        }
        _ => None,
    };
    Ok(Some(Bound { claim, object, node }))
}
