//! Authentication filter: client certificate, bearer token, or anonymous.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderMap, header};
use orlop_api::{status::Status, user::UserInfo};

use crate::{
    auth::{Access, Credentials, pki::ClientCertificateUser},
    http::websocket,
};

/// Returns the user of a request. An invalid credential is Unauthorized; none at all is the anonymous user.
pub(crate) async fn authenticate(
    access: &Access,
    headers: &HeaderMap,
    certificate_user: &ClientCertificateUser,
) -> Result<Arc<UserInfo>, Status> {
    if let ClientCertificateUser::User(user) = certificate_user {
        return Ok(user.clone());
    }
    let token = match headers.get(header::AUTHORIZATION) {
        Some(value) => {
            let bearer = value.to_str().ok().and_then(bearer);
            Some(Cow::Borrowed(bearer.ok_or_else(Status::unauthorized)?))
        }
        None => websocket::token(headers).map(Cow::Owned),
    };
    let credentials = Credentials { token: token.as_deref(), headers, audiences: &access.audiences };
    match access.authenticator.authenticate(&credentials).await? {
        Some(authenticated) => Ok(authenticated.user),
        // A client that presented something is not anonymous.
        None if token.is_some() || *certificate_user == ClientCertificateUser::Untrusted => {
            Err(Status::unauthorized())
        }
        None => Ok(Arc::new(UserInfo::anonymous())),
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
