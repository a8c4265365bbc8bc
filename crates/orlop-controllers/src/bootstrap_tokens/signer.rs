//! Signs the kubeconfig in `kube-public/cluster-info` with every bootstrap token that may sign, so that who has a token
//! can trust it.

use std::collections::{BTreeMap, HashMap};

use futures_util::StreamExt;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    jiff::Timestamp,
};
use orlop_client::{
    Api, Client,
    api::{ListParams, PostParams},
    watch_kind,
    watcher::{self, Event},
};

use super::{NAMESPACE, TYPE, expiry, id_of, signature::sign, value, watch};
use crate::{
    runtime::{Action, Context, WorkQueue},
    status::{is_conflict, is_not_found},
};

const MAP_NAMESPACE: &str = "kube-public";
const MAP: &str = "cluster-info";
const KUBECONFIG: &str = "kubeconfig";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

pub(super) async fn run(context: Context) {
    let queue = context.work_queue::<()>();
    let client = context.client.clone();
    let of_tokens = queue.clone();
    tokio::select! {
        () = watch(&context, |_| of_tokens.add(())) => {}
        () = watch_map(&context, &queue) => {}
        () = queue.run(1, |()| reconcile(client.clone())) => {}
    }
}

async fn watch_map(context: &Context, queue: &WorkQueue<()>) {
    let maps = Api::<ConfigMap>::namespaced(context.client.clone(), MAP_NAMESPACE);
    let named = watcher::Config::default().fields(&format!("metadata.name={MAP}"));
    let mut events = watch_kind(&maps, named);
    while let Some(event) = events.next().await {
        if let Ok(Event::Apply(_) | Event::InitApply(_)) = event {
            queue.add(());
        }
    }
}

async fn reconcile(client: Client) -> orlop_client::Result<Action> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), MAP_NAMESPACE);
    let Some(mut map) = maps.get_opt(MAP).await? else { return Ok(Action::Done) };
    let secrets = Api::<Secret>::namespaced(client, NAMESPACE);
    let secrets = secrets.list(&ListParams::default().fields(&format!("type={TYPE}"))).await?;
    let data = map.data.clone().unwrap_or_default();
    let Some(signed) = signed(&data, &secrets.items, Timestamp::now()) else { return Ok(Action::Done) };
    map.data = Some(signed);
    match maps.replace(MAP, &PostParams::default(), &map).await {
        // The watch brings the newer one.
        Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error),
        _ => Ok(Action::Done),
    }
}

/// Returns the ConfigMap with the signatures of the tokens, if it has others.
fn signed(
    data: &BTreeMap<String, String>,
    secrets: &[Secret],
    now: Timestamp,
) -> Option<BTreeMap<String, String>> {
    let content = data.get(KUBECONFIG)?;
    let tokens: HashMap<String, String> =
        secrets.iter().filter_map(|secret| token_for_signing(secret, now)).collect();
    let mut wanted = data.clone();
    wanted.retain(|key, _| !key.starts_with(SIGNATURE_PREFIX));
    for (id, secret) in tokens {
        wanted.insert(format!("{SIGNATURE_PREFIX}{id}"), sign(content, &id, &secret));
    }
    (wanted != *data).then_some(wanted)
}

/// Returns the id and secret of a token that may sign.
fn token_for_signing(secret: &Secret, now: Timestamp) -> Option<(String, String)> {
    let data = secret.data.as_ref()?;
    let id = value(data, "token-id");
    let text = value(data, "token-secret");
    let is_expired = expiry(secret).is_some_and(|at| at <= now);
    let is_valid = !id.is_empty() && !text.is_empty() && id_of(secret).as_deref() == Some(id);
    (is_valid && !is_expired && value(data, "usage-bootstrap-signing") == "true")
        .then(|| (id.to_owned(), text.to_owned()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    fn token(id: &str, more: &[(&str, &str)]) -> Secret {
        let mut secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": format!("bootstrap-token-{id}")}})).unwrap();
        let base =
            [("token-id", id), ("token-secret", "0123456789abcdef"), ("usage-bootstrap-signing", "true")];
        let all = base.into_iter().chain(more.iter().copied());
        secret.data = Some(all.map(|(key, value)| (key.to_owned(), ByteString(value.into()))).collect());
        secret
    }

    #[test]
    fn every_usable_token_signs_and_old_signatures_go() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let data = BTreeMap::from(
            [("kubeconfig", "apiVersion: v1"), ("jws-kubeconfig-gone00", "x")]
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let tokens = [
            token("abcdef", &[]),
            token("ghijkl", &[("expiration", "2025-12-31T00:00:00Z")]),
            token("mnopqr", &[("usage-bootstrap-signing", "false")]),
        ];
        let wanted = signed(&data, &tokens, now).unwrap();
        assert_eq!(wanted.keys().collect::<Vec<_>>(), ["jws-kubeconfig-abcdef", "kubeconfig"]);
        assert_eq!(signed(&wanted, &tokens, now), None);
        assert_eq!(signed(&BTreeMap::new(), &tokens, now), None);
    }
}
