//! Removes tokens that were generated in secrets and have not been used for a year: a secret is first marked invalid,
//! which refuses its token, and deleted another year later. Secrets that people made themselves stay.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount},
    jiff::{Timestamp, civil::Date, tz::TimeZone},
};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::PartialObjectMeta,
};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    runtime::{Context, Manager},
    service_account_tokens::{ACCOUNT_NAME, ACCOUNT_UID, LAST_USED, TYPE},
    status::{is_conflict, is_not_found},
    workload::time::plus_seconds,
};

/// Name of the controller.
pub(crate) const NAME: &str = "legacy-serviceaccount-token-cleaner-controller";

/// Label of a secret whose token is refused, with the day since when.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// ConfigMap of `kube-system` with the day since which the use of tokens is tracked.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// Resync period, and the time that a token must not have been used, as in Kubernetes.
const SYNC_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
const UNUSED_SECONDS: i64 = 365 * 24 * 60 * 60;
/// Length of a day in labels, such as 2026-01-31.
const DAY_LENGTH: usize = 10;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

async fn run(context: Context) {
    let mut ticks = interval(SYNC_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = clean(&context.client, Timestamp::now()).await {
            tracing::warn!(%error, "cannot clean up unused tokens of service accounts; trying again tomorrow");
        }
    }
}

/// Action on a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    /// Its token is to be refused.
    Invalidate,
    Delete,
}

async fn clean(client: &Client, now: Timestamp) -> orlop_client::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let tracking = maps.get_opt(TRACKING).await?.and_then(|map| map.data).unwrap_or_default();
    if !is_tracked_long_enough(tracking.get("since").map(String::as_str), now) {
        return Ok(());
    }
    let secrets = Api::<PartialObjectMeta<Secret>>::all(client.clone());
    let all = secrets.list(&ListParams::default().fields(&format!("type={TYPE}"))).await?;
    let mut used: HashMap<String, BTreeSet<String>> = HashMap::new();
    for secret in &all.items {
        let verdict = judge(secret, now);
        let namespace = secret.namespace().unwrap_or_default();
        if verdict == Verdict::Keep || !is_generated(client, secret).await? {
            continue;
        }
        if !used.contains_key(&namespace) {
            let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            let pods = pods.list(&ListParams::default()).await?;
            used.insert(namespace.clone(), pods.items.iter().flat_map(secrets_of).collect());
        }
        if used.get(&namespace).is_some_and(|used| used.contains(&secret.name_any())) {
            continue;
        }
        match carry_out(client, secret, verdict, now).await {
            // It has changed since: it is due again tomorrow.
            Err(error) if is_conflict(&error) || is_not_found(&error) => {}
            done => done?,
        }
    }
    Ok(())
}

async fn carry_out(
    client: &Client,
    secret: &PartialObjectMeta<Secret>,
    verdict: Verdict,
    now: Timestamp,
) -> orlop_client::Result<()> {
    let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
    let secrets = Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), &namespace);
    if verdict == Verdict::Invalidate {
        tracing::info!(
            namespace,
            name,
            "the token in the secret has not been used for a year: it is refused"
        );
        let labels = json!({INVALID_SINCE: day(now)});
        let patch = json!({"metadata": {"uid": secret.metadata.uid, "labels": labels}});
        return secrets.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop);
    }
    tracing::info!(namespace, name, "deletes the secret: its token has been refused for a year");
    let preconditions = Preconditions { uid: None, resource_version: secret.resource_version() };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    secrets.delete(&name, &parameters).await.map(drop)
}

/// Returns true if unused tokens are known as such: they have been tracked for a year.
fn is_tracked_long_enough(since: Option<&str>, now: Timestamp) -> bool {
    let since = since.and_then(parse_day).and_then(|since| since.tomorrow().ok());
    // Before the day after its first, some uses may have been missed.
    let since = since.and_then(|since| since.to_zoned(TimeZone::UTC).ok());
    since.is_some_and(|since| now >= plus_seconds(since.timestamp(), UNUSED_SECONDS))
}

/// Decides by the labels and the age of a secret.
fn judge(secret: &PartialObjectMeta<Secret>, now: Timestamp) -> Verdict {
    let limit = plus_seconds(now, -UNUSED_SECONDS);
    let limit_day = day(limit);
    let created = secret.metadata.creation_timestamp.as_ref().map(|created| created.0);
    if created.is_none_or(|created| created >= limit) || secret.metadata.deletion_timestamp.is_some() {
        return Verdict::Keep;
    }
    // A secret without the label has not been used since uses are tracked.
    if let Some(used) = secret.labels().get(LAST_USED)
        && (parse_day(used).is_none() || *used >= limit_day)
    {
        return Verdict::Keep;
    }
    match secret.labels().get(INVALID_SINCE).filter(|since| parse_day(since).is_some()) {
        None => Verdict::Invalidate,
        Some(since) if *since >= limit_day => Verdict::Keep,
        Some(_) => Verdict::Delete,
    }
}

/// Returns true for a secret that its service account lists: those were generated by Kubernetes before 1.24.
async fn is_generated(client: &Client, secret: &PartialObjectMeta<Secret>) -> orlop_client::Result<bool> {
    let Some(account) = secret.annotations().get(ACCOUNT_NAME) else { return Ok(false) };
    let accounts: Api<ServiceAccount> =
        Api::namespaced(client.clone(), &secret.namespace().unwrap_or_default());
    let Some(account) = accounts.get_opt(account).await? else { return Ok(false) };
    let uid = secret.annotations().get(ACCOUNT_UID).filter(|uid| !uid.is_empty());
    let is_same = uid.is_none_or(|uid| Some(uid) == account.metadata.uid.as_ref());
    let name = secret.name_any();
    Ok(is_same && account.secrets.iter().flatten().any(|listed| listed.name.as_deref() == Some(&name)))
}

/// Returns the secrets that a pod names, wherever it does.
fn secrets_of(pod: &Pod) -> Vec<String> {
    let mut found = Vec::new();
    collect(&serde_json::to_value(&pod.spec).unwrap_or_default(), &mut found);
    found
}

fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => {
            for (field, value) in fields {
                match field.as_str() {
                    "secretName" => found.extend(value.as_str().map(str::to_owned)),
                    "secret" | "secretRef" | "secretKeyRef" | "nodePublishSecretRef" => {
                        found.extend(value["name"].as_str().map(str::to_owned));
                    }
                    "imagePullSecrets" => {
                        let secrets = value.as_array().into_iter().flatten();
                        found.extend(secrets.filter_map(|secret| secret["name"].as_str().map(str::to_owned)));
                    }
                    _ => {}
                }
                collect(value, found);
            }
        }
        _ => {}
    }
}

fn day(time: Timestamp) -> String {
    time.to_string().chars().take(DAY_LENGTH).collect()
}

fn parse_day(text: &str) -> Option<Date> {
    Date::strptime("%Y-%m-%d", text).ok().filter(|_| text.len() == DAY_LENGTH)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn secret(created: &str, labels: Value) -> PartialObjectMeta<Secret> {
        serde_json::from_value(
            json!({"metadata": {"name": "a", "creationTimestamp": created, "labels": labels}}),
        )
        .unwrap()
    }

    #[test]
    fn secrets_are_judged_by_their_last_use() {
        let now: Timestamp = "2026-06-15T12:00:00Z".parse().unwrap();
        for (created, labels, verdict) in [
            ("2026-01-01T00:00:00Z", json!({}), Verdict::Keep),
            ("2020-01-01T00:00:00Z", json!({}), Verdict::Invalidate),
            ("2020-01-01T00:00:00Z", json!({LAST_USED: "2025-06-15"}), Verdict::Keep),
            ("2020-01-01T00:00:00Z", json!({LAST_USED: "2025-06-14"}), Verdict::Invalidate),
            ("2020-01-01T00:00:00Z", json!({LAST_USED: "yesterday"}), Verdict::Keep),
            ("2020-01-01T00:00:00Z", json!({INVALID_SINCE: "2025-06-15"}), Verdict::Keep),
            ("2020-01-01T00:00:00Z", json!({INVALID_SINCE: "2025-06-14"}), Verdict::Delete),
            ("2020-01-01T00:00:00Z", json!({INVALID_SINCE: "never"}), Verdict::Invalidate),
            (
                "2020-01-01T00:00:00Z",
                json!({LAST_USED: "2026-06-01", INVALID_SINCE: "2021-01-01"}),
                Verdict::Keep,
            ),
        ] {
            assert_eq!(judge(&secret(created, labels.clone()), now), verdict, "{created} {labels}");
        }
    }

    #[test]
    fn nothing_is_done_before_uses_were_tracked_for_a_year() {
        let now: Timestamp = "2026-06-15T12:00:00Z".parse().unwrap();
        for (since, is_long_enough) in [
            (Some("2025-06-14"), true),
            (Some("2025-06-15"), false),
            (Some("2026-06-15"), false),
            (Some("nonsense"), false),
            (None, false),
        ] {
            assert_eq!(is_tracked_long_enough(since, now), is_long_enough, "{since:?}");
        }
    }

    #[test]
    fn secrets_are_found_wherever_a_pod_names_them() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "all"}}],
                "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}}]}],
            "volumes": [{"name": "a", "secret": {"secretName": "mounted"}},
                {"name": "b", "projected": {"sources": [{"secret": {"name": "projected"}}]}},
                {"name": "c", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "published"}}}]}}))
        .unwrap();
        let mut found = secrets_of(&pod);
        found.sort();
        assert_eq!(found, ["all", "mounted", "one", "projected", "published", "pull"]);
    }
}
