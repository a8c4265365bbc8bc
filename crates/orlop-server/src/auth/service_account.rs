//! Authentication of service account tokens.
//!
//! A token is good as long as its service account and the object it is bound to exist with the same uid, as
//! in Kubernetes: a token of a deleted pod, secret or node is refused before it expires.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::{object_meta, user::UserInfo};
use serde_json::Value;

use super::{
    authenticator::{Authenticated, AuthenticationError, Authenticator, Credentials},
    issuer::Issuer,
};
use crate::{
    object::{is_terminating, now},
    storage::ObjectStore,
};

/// Objects that a token may be bound to: claim, resource, and whether it is in the account's namespace.
const BOUND_OBJECTS: &[(&str, &str, bool)] =
    &[("pod", "pods", true), ("secret", "secrets", true), ("node", "nodes", false)];

/// Authenticates tokens of the cluster's own issuer.
#[derive(Debug)]
pub(crate) struct ServiceAccountTokens {
    issuer: Arc<Issuer>,
    objects: Arc<ObjectStore>,
}

impl ServiceAccountTokens {
    pub(crate) fn new(issuer: Arc<Issuer>, objects: Arc<ObjectStore>) -> Self {
        Self { issuer, objects }
    }

    /// Checks that an object named in a token exists with the uid in the token.
    async fn check(
        &self,
        resource: &str,
        namespace: &str,
        reference: &Value,
    ) -> Result<(), AuthenticationError> {
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        let (name, uid) = (text("name"), text("uid"));
        let invalid = |why: String| AuthenticationError::Invalid(why);
        let kinds = self.objects.registry.kinds();
        let Some(kind) = kinds.get("", "v1", resource) else {
            return Err(invalid(format!("{resource} are not served")));
        };
        let found =
            self.objects.find(kind, namespace, name).await.map_err(AuthenticationError::Unavailable)?;
        let Some(found) = found else { return Err(invalid(format!("{resource} {name:?} not found"))) };
        let object = found.as_stored().map_err(AuthenticationError::Unavailable)?;
        if object_meta::text(object_meta::of(&object), "uid") != uid {
            return Err(invalid(format!("the uid of {resource} {name:?} does not match the token")));
        }
        if is_terminating(&object) && deletion_is_due(&object) {
            return Err(invalid(format!("{resource} {name:?} has been deleted")));
        }
        Ok(())
    }
}

/// Seconds after the deletionTimestamp during which tokens of an object stay valid, as in Kubernetes.
const DELETION_GRACE_SECONDS: i64 = 60;

fn deletion_is_due(object: &Value) -> bool {
    let deleted = object_meta::text(object_meta::of(object), "deletionTimestamp");
    let deleted = orlop_api::time::Time::parse(deleted);
    deleted.is_some_and(|time| time.unix_seconds + DELETION_GRACE_SECONDS < now().unix_seconds)
}

#[async_trait]
impl Authenticator for ServiceAccountTokens {
    async fn authenticate(
        &self,
        credentials: &Credentials<'_>,
    ) -> Result<Option<Authenticated>, AuthenticationError> {
        let Some(claims) = credentials.token.and_then(|token| self.issuer.check(token, now().unix_seconds))
        else {
            return Ok(None);
        };
        if claims["iss"] != self.issuer.name() {
            return Ok(None);
        }
        let audiences = accepted_audiences(&claims, credentials.audiences)?;
        let private = &claims["kubernetes.io"];
        let account = &private["serviceaccount"];
        let (Some(namespace), Some(name)) = (private["namespace"].as_str(), account["name"].as_str()) else {
            return Err(AuthenticationError::Invalid("the token names no service account".to_owned()));
        };
        self.check("serviceaccounts", namespace, account).await?;
        for (claim, resource, namespaced) in BOUND_OBJECTS {
            if let Some(reference) = private.get(claim) {
                self.check(resource, if *namespaced { namespace } else { "" }, reference).await?;
            }
        }
        let mut user = UserInfo::service_account(namespace, name);
        user.uid = account["uid"].as_str().unwrap_or_default().to_owned();
        set_extra(&mut user, &claims);
        Ok(Some(Authenticated { user: Arc::new(user), audiences }))
    }
}

/// Returns the audiences that the token and the verifier share; an error if there is none.
fn accepted_audiences(claims: &Value, accepted: &[String]) -> Result<Vec<String>, AuthenticationError> {
    let audiences: Vec<&str> = match &claims["aud"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let shared = accepted.iter().filter(|audience| audiences.contains(&audience.as_str()));
    let shared: Vec<String> = shared.cloned().collect();
    if shared.is_empty() && !accepted.is_empty() {
        let why = format!("token audiences {audiences:?} is invalid for the target audiences {accepted:?}");
        return Err(AuthenticationError::Invalid(why));
    }
    Ok(shared)
}

/// Sets the extra fields that Kubernetes sets: the token's id and what it is bound to.
fn set_extra(user: &mut UserInfo, claims: &Value) {
    let mut set = |key: &str, value: &Value| {
        if let Some(text) = value.as_str() {
            user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![text.to_owned()]);
        }
    };
    if let Some(id) = claims["jti"].as_str() {
        set("credential-id", &format!("JTI={id}").into());
    }
    let private = &claims["kubernetes.io"];
    for bound in ["pod", "node"] {
        set(&format!("{bound}-name"), &private[bound]["name"]);
        set(&format!("{bound}-uid"), &private[bound]["uid"]);
    }
}
