//! The bootstrap policy: the default roles and bindings, created or completed at start.
//!
//! As in Kubernetes, a start only adds: rules, subjects and labels that are missing. Servers of different versions on
//! one database therefore do not undo each other's work, and what a person added or protected stays.

use futures_util::future::try_join_all;
use orlop_auth::rbac::{
    bootstrap,
    reconcile::{Reconciled, reconcile},
};

use super::{
    BootstrapError,
    objects::{self, Expected},
    send,
};
use crate::{chain::Chain, registry::Found};

/// Attempts at an object that others write at the same time, such as another server that starts.
const ATTEMPTS: usize = 8;

/// Creates missing roles and bindings, and adds what existing ones lack. Their namespaces must exist.
pub(super) async fn ensure(chain: &Chain) -> Result<(), BootstrapError> {
    let (roles, bindings) = (bootstrap::roles(), bootstrap::bindings());
    let found = objects::find(chain, roles.iter().chain(&bindings)).await?;
    // Concurrent writes share a group commit.
    try_join_all(found.into_iter().map(|(expected, stored)| ensure_object(chain, expected, stored))).await?;
    Ok(())
}

async fn ensure_object(
    chain: &Chain,
    expected: Expected<'_>,
    mut stored: Option<Found>,
) -> Result<(), BootstrapError> {
    let mut code = 409;
    for _ in 0..ATTEMPTS {
        let reconciled = match &stored {
            Some(stored) => reconcile(&expected.read(stored).await?, expected.object),
            None if expected.create(chain).await? => return Ok(()),
            None => Reconciled::Unchanged,
        };
        let (method, body) = match reconciled {
            Reconciled::Unchanged if stored.is_some() => return Ok(()),
            // Another server has created it meanwhile.
            Reconciled::Unchanged => ("", String::new()),
            Reconciled::Update(object) => ("PUT", object.to_string()),
            Reconciled::Recreate => ("DELETE", String::new()),
        };
        if !method.is_empty() {
            code = send(chain, method, &expected.path(), "application/json", body).await?;
            match code {
                // After a delete it is created.
                200..300 if method == "PUT" => return Ok(()),
                200..300 | 404 | 409 => {}
                code => return Err(BootstrapError::Response { path: expected.path(), code }),
            }
        }
        stored = expected.find(chain).await?;
    }
    Err(BootstrapError::Response { path: expected.path(), code })
}
