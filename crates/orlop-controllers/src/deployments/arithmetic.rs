//! Sizes of ReplicaSets during a rolling update. Pure.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::{
    sets::{actual, available, created, size, total},
    strategy::{is_recreate, max_surge, max_unavailable, replicas},
};

/// Returns the size of the new ReplicaSet: as large as the surge permits.
pub(super) fn new_size(deployment: &Deployment, old: &[Arc<ReplicaSet>], new_size: i32) -> i32 {
    let wanted = replicas(deployment);
    if is_recreate(deployment) || new_size > wanted {
        return wanted;
    }
    let total = total(old.iter().map(|set| &**set), size) + new_size;
    let room = wanted + max_surge(deployment) - total;
    if room <= 0 { new_size } else { wanted.min(new_size + room) }
}

/// Returns the new sizes of the old ReplicaSets that shrink: unhealthy replicas first, then as many as availability
/// permits, the oldest first.
pub(super) fn shrink_old(
    deployment: &Deployment,
    old: &[Arc<ReplicaSet>],
    new: &ReplicaSet,
) -> Vec<(Arc<ReplicaSet>, i32)> {
    let mut old: Vec<(Arc<ReplicaSet>, i32)> =
        old.iter().filter(|set| size(set) > 0).map(|set| (set.clone(), size(set))).collect();
    if old.is_empty() {
        return Vec::new();
    }
    old.sort_by_key(|(set, _)| created(set));
    let min_available = replicas(deployment) - max_unavailable(deployment);
    let all: i32 = old.iter().map(|(_, size)| size).sum::<i32>() + size(new);
    let mut budget = all - min_available - (size(new) - available(new));
    if budget <= 0 {
        return Vec::new();
    }
    for (set, size) in &mut old {
        let unhealthy = (*size - available(set)).clamp(0, budget);
        *size -= unhealthy;
        budget -= unhealthy;
    }
    let available: i32 = old.iter().map(|(set, _)| available(set)).sum::<i32>() + available(new);
    let mut surplus = (available - min_available).max(0);
    for (_, size) in &mut old {
        let taken = surplus.min(*size);
        *size -= taken;
        surplus -= taken;
    }
    old.into_iter().filter(|(set, new_size)| *new_size != size(set)).collect()
}

/// Returns whether old pods are still there, as the old ReplicaSets' status has it.
pub(super) fn has_old_pods(old: &[Arc<ReplicaSet>]) -> bool {
    total(old.iter().map(|set| &**set), actual) > 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    pub(super) fn deployment(replicas: i32, surge: i32, unavailable: i32) -> Deployment {
        serde_json::from_value(json!({"spec": {"replicas": replicas, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}}))
        .unwrap()
    }

    fn set(name: &str, replicas: i32, available: i32) -> Arc<ReplicaSet> {
        let set = json!({"metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": replicas, "selector": {}},
            "status": {"replicas": replicas, "availableReplicas": available}});
        Arc::new(serde_json::from_value(set).unwrap())
    }

    fn sizes(changes: Vec<(Arc<ReplicaSet>, i32)>) -> Vec<(String, i32)> {
        use orlop_client::ResourceExt;
        changes.into_iter().map(|(set, size)| (set.name_any(), size)).collect()
    }

    #[test]
    fn new_set_grows_by_the_surge() {
        let deployment = deployment(10, 3, 2);
        assert_eq!(new_size(&deployment, &[set("a", 10, 10)], 0), 3);
        assert_eq!(new_size(&deployment, &[set("a", 8, 8)], 3), 5);
        assert_eq!(new_size(&deployment, &[set("a", 0, 0)], 5), 10);
        assert_eq!(new_size(&deployment, &[set("a", 10, 10)], 3), 3);
    }

    #[test]
    fn old_sets_shrink_within_availability() {
        let deployment = deployment(10, 3, 2);
        // 13 in all, 8 must be available, 3 of the new ones are not: two old ones may go.
        assert_eq!(sizes(shrink_old(&deployment, &[set("a", 10, 10)], &set("n", 3, 0))), [("a".into(), 8)]);
        // The new ones became available: three more.
        assert_eq!(sizes(shrink_old(&deployment, &[set("a", 8, 8)], &set("n", 5, 5))), [("a".into(), 3)]);
        // Crash-looping new pods hold everything.
        assert!(shrink_old(&deployment, &[set("a", 8, 8)], &set("n", 5, 0)).is_empty());
        // Rollover: unhealthy old pods go first.
        let old = [set("a", 8, 8), set("b", 5, 0)];
        assert_eq!(sizes(shrink_old(&deployment, &old, &set("n", 0, 0))), [("b".into(), 0)]);
    }

    #[test]
    fn rolling_update_ends_and_keeps_its_limits() {
        // Every combination of small limits comes to its end, one action at a time.
        for (surge, unavailable) in [(0, 1), (1, 0), (1, 1), (3, 2), (10, 10), (0, 3)] {
            let wanted = 7;
            let deployment = deployment(wanted, surge, unavailable);
            let (mut old, mut new) = (wanted, 0);
            for _ in 0..100 {
                let grown = new_size(&deployment, &[set("a", old, old)], new);
                if grown != new {
                    new = grown;
                } else if let [(_, size)] =
                    shrink_old(&deployment, &[set("a", old, old)], &set("n", new, new))[..]
                {
                    old = size;
                }
                assert!(old + new <= wanted + surge, "{old}+{new} with surge {surge}");
                assert!(old + new >= wanted - unavailable, "{old}+{new} with unavailable {unavailable}");
            }
            assert_eq!((old, new), (0, wanted), "surge {surge}, unavailable {unavailable}");
        }
    }
}
