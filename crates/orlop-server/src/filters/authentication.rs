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

pub use orlop_api::user::UserInfo as User;

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
