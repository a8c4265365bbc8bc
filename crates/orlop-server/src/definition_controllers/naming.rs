//! Accepts names of definitions that conflicted, once another definition releases them.

use std::sync::Arc;

use super::definition_request;
use crate::{cluster::Cluster, endpoints::update};

/// Writes definitions again, which claims their names again.
pub(super) async fn resync(cluster: Arc<Cluster>, names: Vec<String>) {
    for name in names {
        let Some(request) = definition_request(&cluster, &name) else { return };
        match update::change(&request, false, |old| Ok(old.clone())).await {
            Ok(_) => {}
            // Deleted meanwhile.
            Err(status) if status.code == 404 => {}
            Err(status) => tracing::warn!(name, message = status.message, "cannot resync definition names"),
        }
    }
}
