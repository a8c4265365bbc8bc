//! Authentication filter.

use std::sync::Arc;

use orlop_api::{status::Status, user::UserInfo};

use crate::{
    auth::{
        Access,
        authentication::{Peer, PresentedCredentials},
    },
    http::warnings::Warnings,
};

/// Returns the user of a request. An invalid credential is Unauthorized; none at all is the anonymous user.
pub(crate) async fn authenticate(
    access: &Access,
    presented: &PresentedCredentials,
    peer: &Peer,
    path: &str,
    warnings: &Warnings,
) -> Result<Arc<UserInfo>, Status> {
    let authenticated = access.authenticator.authenticate(peer, presented, path).await?;
    for warning in authenticated.warnings {
        warnings.add(warning);
    }
    Ok(authenticated.user)
}
