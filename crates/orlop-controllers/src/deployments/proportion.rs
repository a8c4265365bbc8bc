//! Scaling in the middle of a rollout: every ReplicaSet gets its share. Pure.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::{
    sets::{MAX_REPLICAS, created, is_saturated, number, size},
    strategy::{is_recreate, max_surge, replicas},
};

/// Returns the new sizes of ReplicaSets after the Deployment's replicas have changed. Sizes that stay are among
/// them, for their annotations must follow.
pub(super) fn rescale(
    deployment: &Deployment,
    old: &[Arc<ReplicaSet>],
    new: Option<&Arc<ReplicaSet>>,
) -> Vec<(Arc<ReplicaSet>, i32)> {
    let wanted = replicas(deployment);
    let mut active: Vec<Arc<ReplicaSet>> =
        old.iter().chain(new).filter(|set| size(set) > 0).cloned().collect();
    let newest = || new.or_else(|| old.iter().max_by_key(|set| created(set))).cloned();
    let only = match active.len() {
        0 => newest(),
        1 => active.pop(),
        _ => None,
    };
    if let Some(only) = only {
        return if size(&only) == wanted { Vec::new() } else { vec![(only, wanted)] };
    }
    if new.is_some_and(|new| is_saturated(deployment, new)) {
        return old.iter().filter(|set| size(set) > 0).map(|set| (set.clone(), 0)).collect();
    }
    if is_recreate(deployment) || active.is_empty() {
        return Vec::new();
    }
    let allowed = if wanted > 0 { wanted + max_surge(deployment) } else { 0 };
    let delta = allowed - active.iter().map(|set| size(set)).sum::<i32>();
    // The largest first. Of equal ones newer ones grow first, and older ones shrink first.
    active.sort_by(|one, other| {
        let by_age =
            if delta > 0 { created(other).cmp(&created(one)) } else { created(one).cmp(&created(other)) };
        size(other).cmp(&size(one)).then(by_age)
    });
    let mut added = 0;
    let mut sizes: Vec<(Arc<ReplicaSet>, i32)> = Vec::new();
    for set in active {
        let share = share(deployment, &set, delta, added);
        added += share;
        let size = size(&set) + share;
        sizes.push((set, size));
    }
    if let Some((_, largest)) = sizes.first_mut() {
        *largest = (*largest + delta - added).max(0);
    }
    sizes
}

/// Returns how many replicas a ReplicaSet gains or loses.
fn share(deployment: &Deployment, set: &ReplicaSet, delta: i32, added: i32) -> i32 {
    if size(set) == 0 || delta == 0 || delta == added {
        return 0;
    }
    let left = delta - added;
    let fraction = fraction(deployment, set);
    if delta > 0 { fraction.min(left) } else { fraction.max(left) }
}

fn fraction(deployment: &Deployment, set: &ReplicaSet) -> i32 {
    let wanted = replicas(deployment);
    if wanted == 0 {
        return -size(set);
    }
    let actual = || deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
    let before = number(set, MAX_REPLICAS).filter(|before| *before != 0).unwrap_or_else(actual);
    if before == 0 {
        return 0;
    }
    let size_now = f64::from(size(set)) * f64::from(wanted + max_surge(deployment)) / f64::from(before);
    // Half away from zero, as Go's helper does; the cast saturates.
    size_now.round() as i32 - size(set)
}

#[cfg(test)]
mod tests {
    use orlop_client::ResourceExt;
    use serde_json::json;

    use super::*;

    fn deployment(replicas: i32, surge: i32) -> Deployment {
        serde_json::from_value(json!({"spec": {"replicas": replicas, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 2}}}}))
        .unwrap()
    }

    fn set(name: &str, replicas: i32, max: i32, second: u8) -> Arc<ReplicaSet> {
        let set = json!({"metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z"),
            "annotations": {MAX_REPLICAS: max.to_string()}}, "spec": {"replicas": replicas, "selector": {}}});
        Arc::new(serde_json::from_value(set).unwrap())
    }

    fn sizes(changes: Vec<(Arc<ReplicaSet>, i32)>) -> Vec<(String, i32)> {
        changes.into_iter().map(|(set, size)| (set.name_any(), size)).collect()
    }

    #[test]
    fn stuck_rollout_of_8_and_5_becomes_20_and_13() {
        let (old, new) = (set("old", 8, 13, 0), set("new", 5, 13, 1));
        let changes = rescale(&deployment(30, 3), &[old], Some(&new));
        assert_eq!(sizes(changes), [("old".into(), 20), ("new".into(), 13)]);
    }

    #[test]
    fn the_only_active_set_gets_everything() {
        let (old, new) = (set("old", 0, 13, 0), set("new", 10, 13, 1));
        assert_eq!(
            sizes(rescale(&deployment(3, 1), std::slice::from_ref(&old), Some(&new))),
            [("new".into(), 3)]
        );
        let none = set("new", 0, 0, 1);
        assert_eq!(sizes(rescale(&deployment(3, 1), &[old], Some(&none))), [("new".into(), 3)]);
    }

    #[test]
    fn shares_add_up_in_both_directions() {
        for wanted in 0..40 {
            let (old, new) = (set("old", 8, 13, 0), set("new", 5, 13, 1));
            let changes = rescale(&deployment(wanted, 3), &[old], Some(&new));
            let total: i32 = changes.iter().map(|(_, size)| size).sum();
            assert_eq!(total, if wanted == 0 { 0 } else { wanted + 3 }, "{changes:?}");
            assert!(changes.iter().all(|(_, size)| *size >= 0));
        }
    }
}
