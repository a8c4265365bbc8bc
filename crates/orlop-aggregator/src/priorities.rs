//! The order of groups and versions in discovery.

use std::{cmp::Reverse, collections::BTreeMap};

use orlop_api::group_version::compare_versions;

/// Priorities of a group version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Of the group; the highest comes first.
    pub group: i64,
    /// Of the version within its group.
    pub version: i64,
}

/// Priorities of the group versions of CustomResourceDefinitions.
pub const CUSTOM: Priority = Priority { group: 1000, version: 100 };

/// Versions of a group and their priorities.
type VersionPriorities = &'static [(&'static str, i64)];

/// Priorities of built-in groups and their versions, as in kube-apiserver. apiregistration.k8s.io is not among them:
/// it always comes first and has no APIService.
const BUILTIN: &[(&str, i64, VersionPriorities)] = &[
    ("", 18000, &[("v1", 1)]),
    ("apps", 17800, &[("v1", 15)]),
    ("events.k8s.io", 17750, &[("v1", 15)]),
    ("authentication.k8s.io", 17700, &[("v1", 15)]),
    ("authorization.k8s.io", 17600, &[("v1", 15)]),
    ("autoscaling", 17500, &[("v2", 30), ("v1", 15)]),
    ("batch", 17400, &[("v1", 15)]),
    ("certificates.k8s.io", 17300, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("networking.k8s.io", 17200, &[("v1", 15), ("v1beta1", 9)]),
    ("policy", 17100, &[("v1", 15)]),
    ("rbac.authorization.k8s.io", 17000, &[("v1", 15)]),
    ("storage.k8s.io", 16800, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("apiextensions.k8s.io", 16700, &[("v1", 15)]),
    ("admissionregistration.k8s.io", 16700, &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)]),
    ("scheduling.k8s.io", 16600, &[("v1", 15)]),
    ("coordination.k8s.io", 16500, &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12)]),
    ("node.k8s.io", 16300, &[("v1", 15)]),
    ("discovery.k8s.io", 16200, &[("v1", 15)]),
    ("resource.k8s.io", 16200, &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9)]),
    ("flowcontrol.apiserver.k8s.io", 16100, &[("v1", 21)]),
    ("internal.apiserver.k8s.io", 16000, &[("v1alpha1", 9)]),
    ("storagemigration.k8s.io", 15800, &[("v1", 15), ("v1beta1", 9)]),
];
/// Priority of the group that always comes first.
const FIRST: (&str, i64) = (crate::api_service::GROUP, 20_001);

/// Returns the priorities of a built-in group version, if it has any.
pub fn builtin(group: &str, version: &str) -> Option<Priority> {
    let (_, priority, versions) = BUILTIN.iter().find(|(name, ..)| *name == group)?;
    let (_, version) = versions.iter().find(|(name, _)| *name == version)?;
    Some(Priority { group: *priority, version: *version })
}

/// Returns the priorities of a group version that this server serves and that has no APIService.
pub fn of_local(group: &str, version: &str) -> Priority {
    if group == FIRST.0 {
        return Priority { group: FIRST.1, version: 1 };
    }
    builtin(group, version).unwrap_or(CUSTOM)
}

/// A group and its versions, the preferred one first.
pub type OrderedGroup = (String, Vec<String>);

/// Orders groups and their versions: by priority, then groups by name and versions as Kubernetes orders them. The
/// highest priority of its versions counts for a group.
pub fn ordered(all: impl IntoIterator<Item = (String, String, Priority)>) -> Vec<OrderedGroup> {
    let mut groups: BTreeMap<String, (i64, Vec<(i64, String)>)> = BTreeMap::new();
    for (group, version, priority) in all {
        let (highest, versions) = groups.entry(group).or_insert((priority.group, Vec::new()));
        *highest = (*highest).max(priority.group);
        if !versions.iter().any(|(_, known)| *known == version) {
            versions.push((priority.version, version));
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    // Stable: groups of the same priority stay in the order of their names.
    groups.sort_by_key(|(_, (priority, _))| Reverse(*priority));
    let in_order = |(group, (_, mut versions)): (String, (i64, Vec<(i64, String)>))| {
        versions.sort_by(|(one_priority, one), (other_priority, other)| {
            other_priority.cmp(one_priority).then_with(|| compare_versions(other, one))
        });
        (group, versions.into_iter().map(|(_, version)| version).collect())
    };
    groups.into_iter().map(in_order).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_versions_are_ordered_by_priority_then_name() {
        let of = |group: &str, version: &str, priority, within| {
            (group.to_owned(), version.to_owned(), Priority { group: priority, version: within })
        };
        let all = [
            of("b.example", "v1", 1000, 100),
            of("b.example", "v2beta1", 1000, 100),
            of("b.example", "v2", 1000, 100),
            of("a.example", "v1", 1000, 100),
            of("c.example", "v1", 10, 1),
            of("c.example", "v2", 2000, 1),
            of("c.example", "v1alpha1", 10, 5),
        ];
        let ordered = ordered(all);
        let told: Vec<String> =
            ordered.iter().map(|(group, versions)| format!("{group} {}", versions.join(" "))).collect();
        assert_eq!(told, ["c.example v1alpha1 v2 v1", "a.example v1", "b.example v2 v1 v2beta1"]);
    }

    #[test]
    fn own_group_comes_first_and_unknown_groups_last() {
        assert_eq!(of_local("apiregistration.k8s.io", "v1").group, 20_001);
        assert_eq!(of_local("autoscaling", "v2"), Priority { group: 17500, version: 30 });
        assert_eq!(of_local("lamps.example", "v1"), CUSTOM);
        assert_eq!(builtin("lamps.example", "v1"), None);
    }
}
