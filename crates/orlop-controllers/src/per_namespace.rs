//! What every namespace has: a default service account, and the certificate that its clients trust.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};

use crate::retry::{Backoff, is_conflict, is_missing};

/// The name of the controller of service accounts.
pub(crate) const SERVICE_ACCOUNTS: &str = "serviceaccount-controller";
/// The name of the controller of root certificates.
pub(crate) const ROOT_CERTIFICATE: &str = "root-ca-certificate-publisher-controller";

const DEFAULT_ACCOUNT: &str = "default";
const CERTIFICATE: &str = "kube-root-ca.crt";

/// Sees to it that every namespace has its default service account.
pub(crate) async fn service_accounts(client: Client) {
    let deleted = Api::<ServiceAccount>::all(client.clone());
    keep(&client, deleted, DEFAULT_ACCOUNT, |client, namespace| async move {
        let account = ServiceAccount {
            metadata: ObjectMeta { name: Some(DEFAULT_ACCOUNT.into()), ..ObjectMeta::default() },
            ..ServiceAccount::default()
        };
        let accounts = Api::<ServiceAccount>::namespaced(client, &namespace);
        accounts.create(&PostParams::default(), &account).await.map(drop)
    })
    .await;
}

/// Sees to it that every namespace has the root certificate, and the right one.
pub(crate) async fn root_certificate(client: Client, certificate: String) {
    let changed = Api::<ConfigMap>::all(client.clone());
    keep(&client, changed, CERTIFICATE, |client, namespace| {
        let certificate = certificate.clone();
        async move {
            let data = BTreeMap::from([("ca.crt".to_owned(), certificate)]);
            let map = ConfigMap {
                metadata: ObjectMeta { name: Some(CERTIFICATE.into()), ..ObjectMeta::default() },
                data: Some(data.clone()),
                ..ConfigMap::default()
            };
            let maps = Api::<ConfigMap>::namespaced(client, &namespace);
            match maps.create(&PostParams::default(), &map).await {
                Err(error) if is_conflict(&error) => {
                    let current = maps.get(CERTIFICATE).await?;
                    if current.data.as_ref() == Some(&data) {
                        return Ok(());
                    }
                    let patch = serde_json::json!({"data": data});
                    maps.patch(CERTIFICATE, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
                }
                created => created.map(drop),
            }
        }
    })
    .await;
}

/// Calls `make` for every namespace there is or comes to be, and again when what it made under the name is
/// touched.
async fn keep<K, F>(
    client: &Client,
    made: Api<K>,
    name: &str,
    make: impl Fn(Client, String) -> F + Send + Sync,
) where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    F: Future<Output = kube::Result<()>> + Send,
{
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), watcher::Config::default());
    // Without patience, a server that refuses would be asked again and again, and nothing else would run here.
    let namespaces = namespaces.default_backoff().filter_map(|event| async {
        match event {
            Ok(Event::Apply(namespace) | Event::InitApply(namespace))
                if namespace.metadata.deletion_timestamp.is_none() =>
            {
                Some(namespace.name_any())
            }
            _ => None,
        }
    });
    // Only what has the name: there may be very many others.
    let ours = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let touched = watcher(made, ours).default_backoff().filter_map(|event| {
        let namespace = match event {
            Ok(Event::Apply(object) | Event::Delete(object)) => object.namespace(),
            _ => None,
        };
        std::future::ready(namespace)
    });
    let mut due = stream::select(namespaces.boxed(), touched.boxed());
    while let Some(namespace) = due.next().await {
        let mut backoff = Backoff::default();
        loop {
            match make(client.clone(), namespace.clone()).await {
                // A namespace that is gone or going needs nothing any more.
                Err(kube::Error::Api(status)) if status.code == 403 => break,
                Err(error) if is_missing(&error) || is_conflict(&error) => break,
                Ok(()) => break,
                Err(error) => {
                    tracing::debug!(%error, namespace, "will be tried again");
                    tokio::time::timeout(Duration::from_secs(11), backoff.wait()).await.ok();
                }
            }
        }
    }
}
