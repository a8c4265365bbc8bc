//! The default service account of every namespace.

use k8s_openapi::api::core::v1::ServiceAccount;
use orlop_client::{
    Api,
    api::{ObjectMeta, PostParams},
};

use crate::{namespace_content::ensure_in_every_namespace, runtime::Context};

/// Name of the controller.
pub(crate) const NAME: &str = "serviceaccount-controller";

const DEFAULT: &str = "default";

/// Creates the default service account of every namespace, for ever.
pub(crate) async fn run(context: Context) {
    ensure_in_every_namespace::<ServiceAccount, _>(context, DEFAULT, |client, namespace| async move {
        let account = ServiceAccount {
            metadata: ObjectMeta { name: Some(DEFAULT.into()), ..ObjectMeta::default() },
            ..ServiceAccount::default()
        };
        let accounts = Api::<ServiceAccount>::namespaced(client, &namespace);
        accounts.create(&PostParams::default(), &account).await.map(drop)
    })
    .await;
}
