//! kube-rs, as controllers use it.

mod appliers;
mod custom;
mod election;
mod objects;
mod watching;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;

/// Deadline of every wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// A map with one entry.
fn map(name: &str, key: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(key.to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

/// Returns the error of a refused request.
#[track_caller]
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> kube::core::Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => unreachable!("not refused: {other:?}"),
    }
}
