//! Who asks: by client certificate or bearer token.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use orlop_api::status::Status;

use crate::{
    auth::{Tokens, User, pki::Shown, service_account},
    cluster::Cluster,
    http::websocket,
};

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
        None => {
            let user = service_account::authenticate(cluster.issuer(), &cluster.objects, &token).await;
            user.map(Arc::new).ok_or_else(Status::unauthorized)
        }
    }
}

fn bearer(value: &HeaderValue) -> Option<String> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}
