//! Publishes the facts by which extension API servers authenticate clients and this server.

use orlop_auth::authentication_info::{AuthenticationInfo, Data};
use serde_json::{Map, Value, json};

use super::{BootstrapError, send};
use crate::chain::Chain;

const COLLECTION: &str = "/api/v1/namespaces/kube-system/configmaps";
const NAME: &str = "extension-apiserver-authentication";

/// Creates or updates the ConfigMap. `ca` are the CAs of clients of a cluster that says nothing else.
pub(super) async fn ensure(chain: &Chain, ca: &str) -> Result<(), BootstrapError> {
    let cluster = chain.cluster();
    let info = cluster
        .authentication_info()
        .unwrap_or_else(|| AuthenticationInfo { client_ca: ca.to_owned(), ..AuthenticationInfo::default() });
    let published = published(chain).await;
    let data = info.merged_with(published.as_ref().unwrap_or(&Data::new()));
    let (method, path, media_type, body) = match &published {
        Some(published) if *published == data => return Ok(()),
        Some(published) => {
            let gone = published.keys().filter(|key| !data.contains_key(*key));
            let mut change: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
            change.extend(data.iter().map(|(key, value)| (key.clone(), value.clone().into())));
            let path = format!("{COLLECTION}/{NAME}");
            ("PATCH", path, "application/merge-patch+json", json!({"data": change}))
        }
        None => {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": NAME, "namespace": "kube-system"}, "data": data});
            ("POST", COLLECTION.to_owned(), "application/json", object)
        }
    };
    match send(chain, method, &path, media_type, body.to_string()).await? {
        // Another server published its facts meanwhile: the next round merges them.
        200..300 | 409 => Ok(()),
        code if code >= 500 => {
            tracing::warn!(path, code, "cannot publish authentication; it will be retried");
            Ok(())
        }
        code => Err(BootstrapError::Response { path, code }),
    }
}

/// Returns the data of the ConfigMap, if it exists.
async fn published(chain: &Chain) -> Option<Data> {
    let objects = &chain.cluster().objects;
    let kind = objects.registry.kinds().get("", "v1", "configmaps").cloned()?;
    let found = objects.find(&kind, "kube-system", NAME).await.ok()??;
    let object = kind.read(&found).await.ok()?;
    let data = object["data"].as_object().into_iter().flatten();
    Some(data.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect())
}
