//! The ClusterTrustBundle by which pods and nodes verify API servers.
//!
//! Its name has a digest of its content. New certificates are another bundle, which is there before the old one goes.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use futures_util::StreamExt;
use k8s_openapi::api::certificates::v1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use orlop_client::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
    watch_kind, watcher,
};

use crate::{
    root_ca::RootCa,
    runtime::{Action, Context},
    status::{is_already_exists, is_not_found},
};

/// Name of the controller.
pub(crate) const NAME: &str = "kube-apiserver-serving-clustertrustbundle-publisher-controller";

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
/// Bytes of the digest in a name.
const DIGEST_BYTES: usize = 12;

/// Publishes the root CA, and restores its bundle where it was changed, for ever.
pub(crate) async fn run(context: Context, root_ca: RootCa) {
    root_ca.run_with(|root_ca| publish(context.clone(), root_ca)).await;
}

async fn publish(context: Context, root_ca: String) {
    if root_ca.is_empty() {
        return std::future::pending().await;
    }
    let bundles: Api<ClusterTrustBundle> = Api::all(context.client.clone());
    let queue = context.work_queue::<&'static str>();
    let root_ca: Arc<str> = root_ca.into();
    queue.add(SIGNER);
    let observe = async {
        let mut events = watch_kind(&bundles, watcher::Config::default().fields(&of_signer()));
        while let Some(event) = events.next().await {
            match event {
                Ok(_) => queue.add(SIGNER),
                Err(error) => tracing::debug!(%error, "watch failed; retrying with back-off"),
            }
        }
    };
    tokio::select! {
        () = observe => {}
        () = queue.run(1, |_| {
            let (bundles, root_ca) = (bundles.clone(), root_ca.clone());
            async move { reconcile(&bundles, &root_ca).await.map(|()| Action::Done) }
        }) => {}
    }
}

fn of_signer() -> String {
    format!("spec.signerName={SIGNER}")
}

/// Returns the name of the bundle of some certificates.
fn name_of(root_ca: &str) -> String {
    let digest = digest(&SHA256, root_ca.as_bytes());
    let digest: String =
        digest.as_ref().iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{digest}", SIGNER.replace('/', ":"))
}

/// Creates or restores the bundle of the root CA, then deletes others of the signer.
async fn reconcile(bundles: &Api<ClusterTrustBundle>, root_ca: &str) -> orlop_client::Result<()> {
    let name = name_of(root_ca);
    let found = bundles.list(&ListParams::default().fields(&of_signer())).await?.items;
    match found.iter().find(|bundle| bundle.name_any() == name) {
        None => {
            let bundle = ClusterTrustBundle {
                metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
                spec: ClusterTrustBundleSpec {
                    signer_name: Some(SIGNER.to_owned()),
                    trust_bundle: root_ca.to_owned(),
                },
            };
            match bundles.create(&PostParams::default(), &bundle).await {
                Err(error) if !is_already_exists(&error) => return Err(error),
                _ => {}
            }
        }
        Some(known) if known.spec.trust_bundle != root_ca => {
            let mut restored = known.clone();
            restored.spec.trust_bundle = root_ca.to_owned();
            bundles.replace(&name, &PostParams::default(), &restored).await?;
        }
        Some(_) => {}
    }
    for other in found.iter().filter(|bundle| bundle.name_any() != name) {
        match bundles.delete(&other.name_any(), &DeleteParams::default()).await {
            Err(error) if !is_not_found(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_the_beginning_of_the_digest() {
        // printf x | sha256sum
        assert_eq!(name_of("x"), "kubernetes.io:kube-apiserver-serving:2d711642b726b04401627ca9");
    }
}
