//! Status of ResourceQuotas: what a namespace uses.
//!
//! Admission charges writes to a quota in the transaction of the write. This controller computes the first status, and
//! lowers it again when objects are deleted, pods end, or charges shrink. A quota is read before the objects are listed,
//! and its status is written only if it has not changed since: every charge up to the quota's version is in the list,
//! and a later one fails the write. So usage is never set below what was charged.

mod monitors;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{ResourceQuota, ResourceQuotaStatus},
    apimachinery::pkg::api::resource::Quantity,
    jiff::Timestamp,
};
use monitors::Monitors;
use orlop_api::time::Time;
use orlop_client::{
    Api, Client,
    api::{ListParams, PostParams},
    core::DynamicObject,
};
use orlop_quota::{Evaluator, ResourceList};
use serde_json::Value;

use crate::{
    discovery::{Resource, Resources},
    runtime::{Action, Context, Informer, Key, Manager},
    status::is_not_found,
};

/// Name of the controller.
pub(crate) const NAME: &str = "resourcequota-controller";
const CONCURRENCY: usize = 5;
/// Time after which a quota is computed again whatever happens.
const RESYNC: Duration = Duration::from_secs(300);
/// Objects that are read at a time.
const PAGE: u32 = 500;

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    quotas: Arc<Informer<ResourceQuota>>,
    monitors: Monitors,
}

async fn run(context: Context) {
    let quotas: Arc<Informer<ResourceQuota>> = context.informers.of();
    quotas.synced().await;
    let queue = context.work_queue::<Key>();
    let monitors = Monitors::new(context.client.clone(), &context.informers, quotas.clone(), queue.clone());
    let controller =
        Arc::new(Controller { client: context.client.clone(), quotas: quotas.clone(), monitors });
    let changed = queue.clone();
    let subscription = quotas.subscribe(move |change| {
        // Charges of admission are no news.
        change.new.iter().filter(|quota| is_unknown(quota)).for_each(|quota| changed.add(Key::of(&**quota)));
    });
    // Quotas that were computed by an earlier process may have missed deletes since.
    quotas.all().iter().for_each(|quota| queue.add(Key::of(&**quota)));
    queue
        .run(CONCURRENCY, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        })
        .await;
    drop(subscription);
}

/// Returns whether the status of a quota is not of its spec.
fn is_unknown(quota: &ResourceQuota) -> bool {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let known = quota.status.as_ref().and_then(|status| status.hard.as_ref());
    hard != known
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        if self.quotas.get(key).is_none() {
            return Ok(Action::Done);
        }
        let api: Api<ResourceQuota> = Api::namespaced(self.client.clone(), &key.namespace);
        // Read before the objects are: see above.
        let Some(mut quota) = api.get_opt(&key.name).await? else { return Ok(Action::Done) };
        let object = serde_json::to_value(&quota).unwrap_or_default();
        let hard = ResourceList::of(&object, "/spec/hard");
        let used = self.usage(&key.namespace, &object, &hard).await?;
        let (known_hard, known_used) =
            (ResourceList::of(&object, "/status/hard"), ResourceList::of(&object, "/status/used"));
        if (known_hard, known_used) != (hard.clone(), used.clone()) {
            let quantities = |list: &ResourceList| {
                list.0.iter().map(|(name, amount)| (name.clone(), Quantity(amount.to_string()))).collect()
            };
            quota.status =
                Some(ResourceQuotaStatus { hard: Some(quantities(&hard)), used: Some(quantities(&used)) });
            match api.replace_status(&key.name, &PostParams::default(), &quota).await {
                Ok(written) => self.quotas.wrote(written),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Action::After(RESYNC))
    }

    /// Returns what the objects of a namespace use of a quota's resources.
    async fn usage(
        &self,
        namespace: &str,
        quota: &Value,
        hard: &ResourceList,
    ) -> orlop_client::Result<ResourceList> {
        let names = hard.names();
        let now = Time::from_unix(Timestamp::now().as_second());
        let mut used = ResourceList::default();
        let served = Resources::discover(&self.client).await?;
        for (group, resource) in tracked(&names) {
            let Some(evaluator) = Evaluator::of(&group, &resource) else { continue };
            let found = served.iter().find(|known| known.api.plural == resource && known.api.group == group);
            let Some(found) = found.filter(|found| found.namespaced && found.can("list")) else { continue };
            self.monitors.start(found);
            evaluator.matching(&names).into_iter().for_each(|name| used.insert_count(name, 0));
            let sum = self.sum(&evaluator, found, namespace, quota, now).await?;
            used.add(&sum);
        }
        Ok(used.only(&names))
    }

    /// Sums the usage of a resource's objects, page by page.
    async fn sum(
        &self,
        evaluator: &Evaluator,
        resource: &Resource,
        namespace: &str,
        quota: &Value,
        now: Time,
    ) -> orlop_client::Result<ResourceList> {
        let mut page = ListParams::default().limit(PAGE);
        let mut sum = ResourceList::default();
        loop {
            let next = if matches!(evaluator, Evaluator::Count(_)) {
                let list = resource.objects(&self.client, Some(namespace)).list(&page).await?;
                if evaluator.is_in_all_scopes(quota, &Value::Null) {
                    list.items.iter().for_each(|_| sum.add(&evaluator.usage(&Value::Null, now)));
                }
                list.metadata.continue_
            } else {
                let list = resource.whole_objects(&self.client, Some(namespace)).list(&page).await?;
                for object in list.items.iter().map(value_of) {
                    if evaluator.is_in_all_scopes(quota, &object) {
                        sum.add(&evaluator.usage(&object, now));
                    }
                }
                list.metadata.continue_
            };
            match next.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(sum),
            }
        }
    }
}

fn value_of(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Returns the resources, with their groups, whose objects these resources of a quota are about.
fn tracked(names: &[&str]) -> BTreeSet<(String, String)> {
    const KNOWN: &[(&str, &str)] = &[
        ("", "pods"),
        ("", "services"),
        ("", "persistentvolumeclaims"),
        ("resource.k8s.io", "resourceclaims"),
        ("", "configmaps"),
        ("", "secrets"),
        ("", "resourcequotas"),
        ("", "replicationcontrollers"),
    ];
    let known = KNOWN.iter().filter(|(group, resource)| {
        Evaluator::of(group, resource).is_some_and(|evaluator| !evaluator.matching(names).is_empty())
    });
    let mut tracked: BTreeSet<(String, String)> =
        known.map(|(group, resource)| ((*group).to_owned(), (*resource).to_owned())).collect();
    for counted in names.iter().filter_map(|name| name.strip_prefix("count/")) {
        let (resource, group) = counted.split_once('.').unwrap_or((counted, ""));
        tracked.insert((group.to_owned(), resource.to_owned()));
    }
    tracked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_names_the_resources_that_it_tracks() {
        let of = |names: &[&str]| -> Vec<String> {
            tracked(names).into_iter().map(|(group, resource)| format!("{resource}.{group}")).collect()
        };
        assert_eq!(of(&["requests.cpu", "count/jobs.batch"]), ["pods.", "jobs.batch"]);
        assert_eq!(of(&["configmaps", "count/configmaps"]), ["configmaps."]);
        assert_eq!(of(&["gold.storageclass.storage.k8s.io/requests.storage"]), ["persistentvolumeclaims."]);
    }
}
