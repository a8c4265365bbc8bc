//! Who asks: by client certificate or bearer token.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use orlop_api::{object_meta, status::Status};
use serde_json::Value;

use crate::{
    Tokens,
    cluster::{Cluster, now},
    pki::Shown,
    websocket,
};

/// A user, as authorization and audit know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl User {
    /// A user who showed a credential.
    pub fn authenticated(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        groups.push("system:authenticated".to_owned());
        Self { name: name.into(), groups }
    }

    /// One who may do everything.
    pub fn master(name: impl Into<String>) -> Self {
        Self::authenticated(name, ["system:masters".to_owned()])
    }

    /// A service account.
    pub(crate) fn service_account(namespace: &str, name: &str) -> Self {
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        Self::authenticated(format!("system:serviceaccount:{namespace}:{name}"), groups)
    }

    /// One who showed none.
    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".into(), groups: vec!["system:unauthenticated".into()] }
    }

    /// Whether a user may do everything.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}

/// Finds out who asks. A bad credential is refused; none at all makes an anonymous user.
pub(crate) async fn authenticate(
    cluster: &Cluster,
    headers: &HeaderMap,
    shown: &Shown,
    tokens: &Tokens,
) -> Result<Arc<User>, Status> {
    if let Shown::User(user) = shown {
        return Ok(user.clone());
    }
    let token = match headers.get(header::AUTHORIZATION) {
        Some(value) => bearer(value).ok_or_else(Status::unauthorized)?,
        None => match websocket::token(headers) {
            Some(token) => token,
            // One who showed something that does not count is not anonymous.
            None if *shown == Shown::Stranger => return Err(Status::unauthorized()),
            None => return Ok(Arc::new(User::anonymous())),
        },
    };
    match tokens.user(&token) {
        Some(user) => Ok(Arc::new(user)),
        None => service_account(cluster, &token).await.map(Arc::new).ok_or_else(Status::unauthorized),
    }
}

fn bearer(value: &HeaderValue) -> Option<String> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

/// The service account of a token, if it is still the one that the token was signed for.
pub(crate) async fn service_account(cluster: &Cluster, token: &str) -> Option<User> {
    let claims = cluster.issuer().check(token, now().unix_seconds)?;
    let text = |path: &str| claims.pointer(path).and_then(Value::as_str);
    let namespace = text("/kubernetes.io/namespace")?;
    let name = text("/kubernetes.io/serviceaccount/name")?;
    let kinds = cluster.registry.kinds();
    let account = cluster.find(kinds.get("", "v1", "serviceaccounts")?, namespace, name).await.ok()??;
    let account = account.as_stored().ok()?;
    if text("/kubernetes.io/serviceaccount/uid") != Some(object_meta::text(object_meta::of(&account), "uid"))
    {
        return None;
    }
    Some(User::service_account(namespace, name))
}
