//! Deletes CertificateSigningRequests and PodCertificateRequests that are of no use any more.

use std::time::Duration;

use k8s_openapi::{
    api::certificates::v1::{CertificateSigningRequest, PodCertificateRequest},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
    core::PartialObjectMeta,
};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    runtime::{Context, Manager},
    status::{is_conflict, is_not_found},
};

/// Name of the controller of CertificateSigningRequests.
pub(crate) const NAME: &str = "certificatesigningrequest-cleaner-controller";
/// Name of the controller of PodCertificateRequests.
pub(crate) const PODS: &str = "podcertificaterequest-cleaner-controller";

/// Resync period of CertificateSigningRequests.
const INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Resync period of PodCertificateRequests, and their age, in seconds.
const POD_INTERVAL: Duration = Duration::from_secs(5 * 60);
const POD_AGE: i64 = 30 * 60;
/// Age of decided requests, in seconds.
const DECIDED_AGE: i64 = 60 * 60;
/// Age of requests that nobody decided on or signed, in seconds.
const PENDING_AGE: i64 = 24 * 60 * 60;
/// Objects of a page.
const PAGE: u32 = 500;

/// Registers one of the controllers.
pub(crate) fn register(manager: &mut Manager, name: &'static str) {
    match name {
        NAME => manager.register(name, |context| run(context, INTERVAL, clean)),
        _ => manager.register(name, |context| run(context, POD_INTERVAL, clean_pods)),
    }
}

async fn run<F>(context: Context, period: Duration, clean: fn(Client) -> F)
where
    F: Future<Output = orlop_client::Result<()>> + Send,
{
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = clean(context.client.clone()).await {
            tracing::warn!(%error, "cannot clean up certificate requests; trying again later");
        }
    }
}

async fn clean(client: Client) -> orlop_client::Result<()> {
    let requests = Api::<CertificateSigningRequest>::all(client);
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let found = requests.list(&page).await?;
        for request in found.items.iter().filter(|request| is_old(request, Timestamp::now())) {
            delete(&requests, &request.name_any(), request.uid()).await?;
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Ok(()),
        }
    }
}

async fn clean_pods(client: Client) -> orlop_client::Result<()> {
    let requests = Api::<PartialObjectMeta<PodCertificateRequest>>::all(client.clone());
    let now = Timestamp::now();
    for request in requests.list(&ListParams::default()).await?.items {
        if is_older(request.metadata.creation_timestamp.as_ref(), POD_AGE, now) {
            let namespace = request.namespace().unwrap_or_default();
            let own = Api::<PodCertificateRequest>::namespaced(client.clone(), &namespace);
            delete(&own, &request.name_any(), request.uid()).await?;
        }
    }
    Ok(())
}

async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>) -> orlop_client::Result<()>
where
    K: orlop_client::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let preconditions = Preconditions { uid, resource_version: None };
    match api.delete(name, &DeleteParams::default().preconditions(preconditions)).await {
        Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Returns true for a request that was answered an hour ago, or that nobody has answered for a day.
fn is_old(request: &CertificateSigningRequest, now: Timestamp) -> bool {
    let status = request.status.clone().unwrap_or_default();
    let is_issued = status.certificate.is_some_and(|certificate| !certificate.0.is_empty());
    let conditions = status.conditions.unwrap_or_default();
    if conditions.is_empty() {
        return is_older(request.metadata.creation_timestamp.as_ref(), PENDING_AGE, now);
    }
    conditions.iter().any(|condition| {
        let age = match condition.type_.as_str() {
            "Denied" | "Failed" => DECIDED_AGE,
            "Approved" if is_issued => DECIDED_AGE,
            "Approved" => PENDING_AGE,
            _ => return false,
        };
        is_older(condition.last_update_time.as_ref(), age, now)
    })
}

fn is_older(time: Option<&Time>, seconds: i64, now: Timestamp) -> bool {
    time.is_some_and(|time| now.duration_since(time.0).as_secs() > seconds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answered_requests_live_an_hour_and_open_ones_a_day() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let request = |created: &str, condition: Option<(&str, &str)>, certificate: &str| {
            let conditions: Vec<_> = condition
                .into_iter()
                .map(|(kind, at)| json!({"type": kind, "status": "True", "lastUpdateTime": at}))
                .collect();
            let request: CertificateSigningRequest = serde_json::from_value(json!({
                "metadata": {"name": "a", "creationTimestamp": created},
                "spec": {"request": "eA==", "signerName": "s"},
                "status": {"conditions": conditions, "certificate": certificate},
            }))
            .unwrap();
            is_old(&request, now)
        };
        let (recent, hours, days) = ("2026-01-01T23:30:00Z", "2026-01-01T22:00:00Z", "2025-12-31T00:00:00Z");
        assert!(!request(hours, None, "") && request(days, None, ""));
        assert!(!request(days, Some(("Denied", recent)), "") && request(days, Some(("Denied", hours)), ""));
        assert!(request(days, Some(("Approved", hours)), "eA=="));
        assert!(!request(days, Some(("Approved", hours)), "") && request(days, Some(("Approved", days)), ""));
    }
}
