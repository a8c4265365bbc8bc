//! Aggregation of cluster roles: the rules of a role with an aggregationRule are those of all roles that its
//! selectors select.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::StreamExt;
use k8s_openapi::{
    api::rbac::v1::{ClusterRole, PolicyRule},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use orlop_client::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    core::{Selector, SelectorExt},
    watch_kind,
    watcher::{self, Event},
};
use serde_json::json;
use tokio::sync::RwLock;

use crate::{
    runtime::{Action, Context, WorkQueue},
    status::is_not_found,
};

/// Name of the controller, and the manager of the fields that it applies.
pub(crate) const NAME: &str = "clusterrole-aggregation-controller";

/// Roles that are reconciled at a time.
const CONCURRENCY: usize = 2;

/// All cluster roles, by name. There are few: any of them may be selected by any other.
type Roles = Arc<RwLock<BTreeMap<String, ClusterRole>>>;

/// Aggregates cluster roles, for ever.
pub(crate) async fn run(context: Context) {
    let (roles, queue) = (Roles::default(), context.work_queue());
    let api = Api::<ClusterRole>::all(context.client.clone());
    tokio::select! {
        () = watch(api.clone(), &roles, &queue) => {}
        () = queue.run(CONCURRENCY, |name: String| reconcile(api.clone(), roles.clone(), name)) => {}
    }
}

/// Keeps the roles, and queues every aggregated one with each change: any change may concern it.
async fn watch(api: Api<ClusterRole>, roles: &Roles, queue: &Arc<WorkQueue<String>>) {
    let mut changes = watch_kind(&api, watcher::Config::default());
    let mut listed = None;
    while let Some(change) = changes.next().await {
        let mut present = roles.write().await;
        match change {
            Ok(Event::Init) => listed = Some(BTreeMap::new()),
            Ok(Event::InitApply(role)) => {
                listed.get_or_insert_with(BTreeMap::new).insert(role.name_any(), role);
                continue;
            }
            Ok(Event::InitDone) => *present = listed.take().unwrap_or_default(),
            Ok(Event::Apply(role)) => {
                present.insert(role.name_any(), role);
            }
            Ok(Event::Delete(role)) => {
                present.remove(&role.name_any());
            }
            Err(error) => {
                tracing::debug!(%error, "watch failed; retrying with back-off");
                continue;
            }
        }
        if listed.is_none() {
            let aggregated = present.values().filter(|role| role.aggregation_rule.is_some());
            aggregated.for_each(|role| queue.add(role.name_any()));
        }
    }
}

async fn reconcile(api: Api<ClusterRole>, roles: Roles, name: String) -> orlop_client::Result<Action> {
    let rules = {
        let roles = roles.read().await;
        let Some(role) = roles.get(&name) else { return Ok(Action::Done) };
        let Some(selectors) = role.aggregation_rule.as_ref() else { return Ok(Action::Done) };
        let selectors = selectors.cluster_role_selectors.as_deref().unwrap_or_default();
        let rules = gathered(&name, selectors, &roles);
        if role.rules.as_deref().unwrap_or_default() == rules {
            return Ok(Action::Done);
        }
        rules
    };
    let applied = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    });
    match api.patch(&name, &PatchParams::apply(NAME).force(), &Patch::Apply(applied)).await {
        Err(error) if is_not_found(&error) => Ok(Action::Done),
        patched => patched.map(|_| Action::Done),
    }
}

/// Returns the rules of all roles but the one itself that a selector selects, each once: selector by selector, and
/// of each the roles by name. A selector that is not valid selects nothing.
fn gathered(
    name: &str,
    selectors: &[LabelSelector],
    roles: &BTreeMap<String, ClusterRole>,
) -> Vec<PolicyRule> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        let Ok(selector) = Selector::try_from(selector.clone()) else { continue };
        let selected = roles.iter().filter(|(other, role)| *other != name && selector.matches(role.labels()));
        for rule in selected.flat_map(|(_, role)| role.rules.iter().flatten()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, labels: &[(&str, &str)], verbs: &[&str]) -> (String, ClusterRole) {
        let rule = |verb: &&str| PolicyRule { verbs: vec![(*verb).to_owned()], ..PolicyRule::default() };
        let mut role =
            ClusterRole { rules: Some(verbs.iter().map(rule).collect()), ..ClusterRole::default() };
        role.metadata.labels =
            Some(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
        (name.to_owned(), role)
    }

    #[test]
    fn rules_of_selected_roles_are_gathered_once() {
        let roles = BTreeMap::from([
            role("b", &[("to", "x")], &["list", "get"]),
            role("a", &[("to", "x"), ("also", "y")], &["get"]),
            role("c", &[("also", "y")], &["delete"]),
            role("self", &[("to", "x")], &["escalate"]),
        ]);
        let selector = |key: &str, value: &str| LabelSelector {
            match_labels: Some(BTreeMap::from([(key.to_owned(), value.to_owned())])),
            ..LabelSelector::default()
        };
        let verbs = |selectors: &[LabelSelector]| -> Vec<String> {
            gathered("self", selectors, &roles).into_iter().flat_map(|rule| rule.verbs).collect()
        };
        assert_eq!(verbs(&[selector("to", "x")]), ["get", "list"]);
        assert_eq!(verbs(&[selector("also", "y"), selector("to", "x")]), ["get", "delete", "list"]);
        assert_eq!(verbs(&[]), [""; 0]);
    }
}
