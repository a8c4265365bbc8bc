//! The ConfigMap in every namespace by which its pods verify the API server.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use orlop_client::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};

use crate::{
    namespace_content::ensure_in_every_namespace, root_ca::RootCa, runtime::Context, status::is_conflict,
};

/// Name of the controller.
pub(crate) const NAME: &str = "root-ca-certificate-publisher-controller";

const CONFIG_MAP: &str = "kube-root-ca.crt";
const FIELD: &str = "ca.crt";

/// Publishes the root CA in every namespace, and restores it where it was changed, for ever.
pub(crate) async fn run(context: Context, root_ca: RootCa) {
    root_ca.run_with(|root_ca| publish_everywhere(context.clone(), root_ca)).await;
}

async fn publish_everywhere(context: Context, root_ca: String) {
    let data = BTreeMap::from([(FIELD.to_owned(), root_ca)]);
    ensure_in_every_namespace::<ConfigMap, _>(context, CONFIG_MAP, |client, namespace| {
        publish(Api::namespaced(client, &namespace), data.clone())
    })
    .await;
}

async fn publish(maps: Api<ConfigMap>, data: BTreeMap<String, String>) -> orlop_client::Result<()> {
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some(CONFIG_MAP.into()), ..ObjectMeta::default() },
        data: Some(data.clone()),
        ..ConfigMap::default()
    };
    match maps.create(&PostParams::default(), &map).await {
        Err(error) if is_conflict(&error) => {
            let current = maps.get(CONFIG_MAP).await?.data.unwrap_or_default();
            if current.get(FIELD) == data.get(FIELD) {
                return Ok(());
            }
            let patch = Patch::Merge(serde_json::json!({"data": data}));
            maps.patch(CONFIG_MAP, &PatchParams::default(), &patch).await.map(drop)
        }
        created => created.map(drop),
    }
}
