//! Tokens in secrets of type `kubernetes.io/service-account-token`: filled for their service account, deleted with it.

use futures_util::future::BoxFuture;
use std::{collections::BTreeMap, sync::Arc};

use futures_util::{StreamExt, stream};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, ServiceAccount},
    jiff::Timestamp,
};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::PartialObjectMeta,
    watch_kind,
    watcher::{self, Event},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    root_ca::RootCa,
    runtime::{Action, Context, Manager, WorkQueue},
    status::{is_conflict, is_not_found},
};

/// Name of the controller.
pub const NAME: &str = "serviceaccount-token-controller";

/// Type of secrets with a token.
pub(crate) const TYPE: &str = "kubernetes.io/service-account-token";
/// Annotation with the name of the service account.
pub(crate) const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// Label with the day on which a token was last used.
pub(crate) const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Annotation with its uid.
pub(crate) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Secrets that are reconciled at a time.
const CONCURRENCY: usize = 4;

/// Signs the claims of a token.
pub type SignToken = Arc<dyn Fn(&Value) -> Result<String, String> + Send + Sync>;

/// Namespace and name of a secret.
pub type Key = (String, String);

/// Registers the controller.
pub fn register(manager: &mut Manager, root_ca: RootCa, sign: SignToken) {
    manager.register(NAME, move |context| {
        let (root_ca, sign) = (root_ca.clone(), sign.clone());
        async move { root_ca.run_with(|root_ca| run(context.clone(), root_ca, sign.clone())).await }
    });
}

async fn run(context: Context, root_ca: String, sign: SignToken) {
    let queue = context.work_queue();
    let client = context.client.clone();
    tokio::select! {
        () = watch(&context, &queue) => {}
        () = queue.run(CONCURRENCY, |key: Key| {
            let reconciled = reconcile(client.clone(), key, root_ca.clone(), sign.clone());
            async move {
                match reconciled.await {
                    // Somebody else has written or deleted it: the watch brings it up again.
                    Err(error) if is_conflict(&error) || is_not_found(&error) => Ok(Action::Done),
                    reconciled => reconciled.map(|()| Action::Done),
                }
            }
        }) => {}
    }
}

/// Queues secrets, for ever: when they change, and when their service account does.
async fn watch(context: &Context, queue: &Arc<WorkQueue<Key>>) {
    let only_tokens = watcher::Config::default().fields(&format!("type={TYPE}"));
    let secrets = Api::<PartialObjectMeta<Secret>>::all(context.client.clone());
    let secrets = watch_kind(&secrets, only_tokens).filter_map(|event| {
        std::future::ready(match event {
            Ok(Event::Apply(secret) | Event::InitApply(secret)) => {
                Some(vec![(secret.namespace().unwrap_or_default(), secret.name_any())])
            }
            _ => None,
        })
    });
    let accounts = Api::<PartialObjectMeta<ServiceAccount>>::all(context.client.clone());
    let client = context.client.clone();
    let accounts = watch_kind(&accounts, watcher::Config::default()).filter_map(move |event| {
        let client = client.clone();
        async move {
            let (Ok(Event::Delete(account)) | Ok(Event::Apply(account))) = event else { return None };
            let namespace = account.namespace().unwrap_or_default();
            let secrets = Api::<PartialObjectMeta<Secret>>::namespaced(client, &namespace);
            let all = secrets.list(&ListParams::default().fields(&format!("type={TYPE}"))).await.ok()?;
            let name = account.name_any();
            let of_account = |secret: &&PartialObjectMeta<Secret>| {
                secret.annotations().get(ACCOUNT_NAME).is_some_and(|owner| *owner == name)
            };
            let keys =
                all.items.iter().filter(of_account).map(|secret| (namespace.clone(), secret.name_any()));
            Some(keys.collect())
        }
    });
    let mut changed = stream::select(secrets.boxed(), accounts.boxed());
    while let Some(keys) = changed.next().await {
        let keys: Vec<Key> = keys;
        keys.into_iter().for_each(|key| queue.add(key));
    }
}

async fn reconcile(
    client: Client,
    (namespace, name): Key,
    root_ca: String,
    sign: SignToken,
) -> orlop_client::Result<()> {
    let secrets = Api::<Secret>::namespaced(client.clone(), &namespace);
    let Some(secret) = secrets.get_opt(&name).await? else { return Ok(()) };
    if secret.type_.as_deref() != Some(TYPE) || secret.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let annotation = |key: &str| secret.annotations().get(key).cloned().unwrap_or_default();
    let (account_name, account_uid) = (annotation(ACCOUNT_NAME), annotation(ACCOUNT_UID));
    if account_name.is_empty() {
        return Ok(());
    }
    let accounts = Api::<ServiceAccount>::namespaced(client, &namespace);
    let account = accounts.get_opt(&account_name).await?;
    let uid = account.as_ref().and_then(|account| account.metadata.uid.clone()).unwrap_or_default();
    if account.is_none() || (!account_uid.is_empty() && account_uid != uid) {
        // The account is gone, and its tokens with it.
        let preconditions =
            Preconditions { uid: secret.metadata.uid.clone(), resource_version: secret.resource_version() };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        return secrets.delete(&name, &parameters).await.map(drop);
    }
    let data = secret.data.clone().unwrap_or_default();
    let Some(missing) = missing(&data, &namespace, &root_ca, || {
        let claims = json!({
            "iss": "kubernetes/serviceaccount",
            "sub": format!("system:serviceaccount:{namespace}:{account_name}"),
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": name,
            "kubernetes.io/serviceaccount/service-account.name": account_name,
            "kubernetes.io/serviceaccount/service-account.uid": uid,
        });
        sign(&claims).inspect_err(|error| tracing::warn!(error, "cannot sign a service account token")).ok()
    }) else {
        return Ok(());
    };
    if missing.is_empty() && account_uid == uid {
        return Ok(());
    }
    let mut changed = secret.clone();
    changed.annotations_mut().insert(ACCOUNT_UID.to_owned(), uid);
    let missing = missing.into_iter().map(|(field, value)| (field.to_owned(), value));
    changed.data.get_or_insert_default().extend(missing);
    secrets.replace(&name, &PostParams::default(), &changed).await.map(drop)
}

/// Labels secrets with the day on which their token was last used, until there are no more uses. `uses` are the
/// namespaces and names of secrets.
pub fn record_uses(client: Client, mut uses: mpsc::Receiver<Key>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        while let Some((namespace, name)) = uses.recv().await {
            let secrets = Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), &namespace);
            if let Err(error) = record_use(&secrets, &name).await {
                tracing::debug!(%error, namespace, name, "cannot record the use of a token");
            }
        }
    })
}

async fn record_use(secrets: &Api<PartialObjectMeta<Secret>>, name: &str) -> orlop_client::Result<()> {
    let Some(secret) = secrets.get_opt(name).await? else { return Ok(()) };
    let today: String = Timestamp::now().to_string().chars().take("2026-01-01".len()).collect();
    if secret.labels().get(LAST_USED) == Some(&today) {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": secret.metadata.uid, "labels": {LAST_USED: today}}});
    secrets.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

/// Returns the fields that a secret lacks or has wrong; `None` if no token can be made.
fn missing(
    data: &BTreeMap<String, ByteString>,
    namespace: &str,
    root_ca: &str,
    token: impl FnOnce() -> Option<String>,
) -> Option<BTreeMap<&'static str, ByteString>> {
    let mut missing = BTreeMap::new();
    for (field, wanted) in [("ca.crt", root_ca), ("namespace", namespace)] {
        if data.get(field).is_none_or(|current| current.0 != wanted.as_bytes()) {
            missing.insert(field, ByteString(wanted.as_bytes().to_vec()));
        }
    }
    if data.get("token").is_none_or(|token| token.0.is_empty()) {
        missing.insert("token", ByteString(token()?.into_bytes()));
    }
    Some(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_fields_are_filled() {
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let token = || Some("t".to_owned());
        let all = missing(&BTreeMap::new(), "ns", "ca", token).unwrap();
        assert_eq!(
            all,
            BTreeMap::from([("ca.crt", bytes("ca")), ("namespace", bytes("ns")), ("token", bytes("t"))])
        );
        let data: BTreeMap<String, ByteString> =
            all.into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
        assert_eq!(missing(&data, "ns", "ca", || None), Some(BTreeMap::new()), "a token is made once");
        assert_eq!(missing(&data, "ns", "new", token), Some(BTreeMap::from([("ca.crt", bytes("new"))])));
        assert_eq!(missing(&BTreeMap::new(), "ns", "ca", || None), None);
    }
}
