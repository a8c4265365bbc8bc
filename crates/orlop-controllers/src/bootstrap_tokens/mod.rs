//! Bootstrap tokens: the ConfigMap `cluster-info` is signed with them, and those that have expired are deleted.

mod cleaner;
mod signature;
mod signer;

use std::collections::BTreeMap;

use futures_util::StreamExt;
use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use orlop_client::{
    Api, ResourceExt, watch_kind,
    watcher::{self, Event},
};

use crate::runtime::{Context, Manager};

/// Name of the controller that signs.
pub(crate) const SIGNER: &str = "bootstrap-signer-controller";
/// Name of the controller that deletes.
pub(crate) const CLEANER: &str = "token-cleaner-controller";

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const NAME_PREFIX: &str = "bootstrap-token-";

/// Registers one of the controllers.
pub(crate) fn register(manager: &mut Manager, name: &'static str) {
    match name {
        SIGNER => manager.register(name, signer::run),
        _ => manager.register(name, cleaner::run),
    }
}

/// Returns a value of a token's secret.
fn value<'a>(data: &'a BTreeMap<String, ByteString>, key: &str) -> &'a str {
    data.get(key).and_then(|value| std::str::from_utf8(&value.0).ok()).unwrap_or_default()
}

/// Returns the expiry of a token. One that cannot be read has passed.
fn expiry(secret: &Secret) -> Option<Timestamp> {
    let data = secret.data.as_ref()?;
    let text = Some(value(data, "expiration")).filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or(Timestamp::MIN))
}

/// Calls `changed` with every token that changes; with `None` at one that is deleted, or when all have been listed.
async fn watch(context: &Context, mut changed: impl FnMut(Option<Secret>)) {
    let secrets = Api::<Secret>::namespaced(context.client.clone(), NAMESPACE);
    let of_type = watcher::Config::default().fields(&format!("type={TYPE}"));
    let mut events = watch_kind(&secrets, of_type);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(secret) | Event::InitApply(secret)) => changed(Some(secret)),
            Ok(Event::Delete(_) | Event::InitDone) => changed(None),
            _ => {}
        }
    }
}

/// Returns the id of a token by the name of its secret.
fn id_of(secret: &Secret) -> Option<String> {
    secret.name_any().strip_prefix(NAME_PREFIX).map(str::to_owned)
}
