//! Authentication filter.

use orlop_api::status::Status;

use crate::{
    auth::{
        Access, Authenticated,
        authentication::{Peer, PresentedCredentials},
    },
    http::warnings::Warnings,
};

/// Returns the user of a request, and what is to be recorded of the credential. An invalid credential is Unauthorized;
/// none at all is the anonymous user.
pub(crate) async fn authenticate(
    access: &Access,
    presented: &PresentedCredentials,
    peer: &Peer,
    path: &str,
    warnings: &Warnings,
) -> Result<Authenticated, Status> {
    let authenticated = access.authenticator.authenticate(peer, presented, path).await?;
    for warning in &authenticated.warnings {
        warnings.add(warning.as_str());
    }
    Ok(authenticated)
}
