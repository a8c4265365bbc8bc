//! Objects that bear this controller's labels, as their watches show them: one that is certainly not there need not be
//! read before it is created.
//!
//! Names are kept as hashes. Two names with one hash cost a read and nothing else.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::{ChildKey, child_hash};
use crate::cluster::Resource;

/// Version of an object whose apply is under way: no event is newer.
const UNDER_WAY: u64 = u64::MAX;

#[derive(Debug, Default)]
pub(super) struct Existing {
    kinds: Mutex<HashMap<Resource, Names>>,
}

/// Objects of a kind, as one watch shows them.
#[derive(Debug, Default)]
struct Names {
    /// The watch has listed everything.
    is_complete: bool,
    /// Newest version of each object that an event or an answer has shown.
    versions: HashMap<u64, u64>,
    /// The same, of a list that is under way.
    listed: HashMap<u64, u64>,
}

/// The claim of a pass to apply an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// None of this controller's objects has the name.
    Absent,
    /// There is one, or nobody knows.
    Unknown,
}

impl Existing {
    fn lock(&self) -> MutexGuard<'_, HashMap<Resource, Names>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A list of a kind begins.
    pub(super) fn begin(&self, resource: &Resource) {
        let mut kinds = self.lock();
        let names = kinds.entry(resource.clone()).or_default();
        names.is_complete = false;
        names.listed.clear();
    }

    /// A list is complete: what it did not name is gone, except what is being applied or was applied since.
    pub(super) fn complete(&self, resource: &Resource) {
        let mut kinds = self.lock();
        // A watch that has been ended may still hand on an event.
        let Some(names) = kinds.get_mut(resource) else { return };
        let newest = names.listed.values().copied().max().unwrap_or_default();
        names.versions.retain(|_, version| *version > newest);
        for (hash, version) in std::mem::take(&mut names.listed) {
            let known = names.versions.entry(hash).or_default();
            *known = version.max(*known);
        }
        names.is_complete = true;
    }

    /// An event shows an object.
    pub(super) fn observe(&self, resource: &Resource, child: &ChildKey, version: &str, is_listing: bool) {
        let mut kinds = self.lock();
        let Some(names) = kinds.get_mut(resource) else { return };
        let versions = if is_listing { &mut names.listed } else { &mut names.versions };
        let known = versions.entry(child_hash(child)).or_default();
        *known = number(version).max(*known);
    }

    /// An event says that an object is gone. It may have been applied again since.
    pub(super) fn gone(&self, resource: &Resource, child: &ChildKey, version: &str) {
        let mut kinds = self.lock();
        let Some(names) = kinds.get_mut(resource) else { return };
        let hash = child_hash(child);
        if names.versions.get(&hash).is_some_and(|known| *known <= number(version)) {
            names.versions.remove(&hash);
        }
    }

    /// A pass is about to apply an object.
    pub(super) fn claim(&self, resource: &Resource, child: &ChildKey) -> Claim {
        let mut kinds = self.lock();
        let Some(names) = kinds.get_mut(resource) else { return Claim::Unknown };
        match names.versions.insert(child_hash(child), UNDER_WAY) {
            None if names.is_complete => Claim::Absent,
            _ => Claim::Unknown,
        }
    }

    /// The apply has ended: with an object of this version, or with nothing.
    pub(super) fn settle(&self, resource: &Resource, child: &ChildKey, claim: Claim, version: Option<&str>) {
        let mut kinds = self.lock();
        let Some(names) = kinds.get_mut(resource) else { return };
        let hash = child_hash(child);
        match (version, claim) {
            (Some(version), _) => drop(names.versions.insert(hash, number(version))),
            (None, Claim::Absent) => drop(names.versions.remove(&hash)),
            // Something may be there. Whatever an event says of it is newer.
            (None, Claim::Unknown) => drop(names.versions.insert(hash, 0)),
        }
    }

    /// A kind is not watched any more.
    pub(super) fn forget(&self, resource: &Resource) {
        self.lock().remove(resource);
    }
}

/// Versions of one resource can be compared as numbers. One that is none is the oldest.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Gvk;

    fn maps() -> Resource {
        Resource { gvk: Gvk::new("v1", "ConfigMap"), plural: "configmaps".into(), namespaced: true }
    }

    fn child(name: &str) -> ChildKey {
        ChildKey { group_kind: "ConfigMap".into(), namespace: Some("default".into()), name: name.into() }
    }

    fn listed(names: &[(&str, &str)]) -> Existing {
        let existing = Existing::default();
        existing.begin(&maps());
        for (name, version) in names {
            existing.observe(&maps(), &child(name), version, true);
        }
        existing.complete(&maps());
        existing
    }

    #[test]
    fn object_is_absent_only_once_a_list_is_complete() {
        let existing = Existing::default();
        assert_eq!(existing.claim(&maps(), &child("a")), Claim::Unknown);
        existing.begin(&maps());
        assert_eq!(existing.claim(&maps(), &child("a")), Claim::Unknown);
        existing.complete(&maps());
        assert_eq!(existing.claim(&maps(), &child("b")), Claim::Absent);
        assert_eq!(listed(&[("a", "3")]).claim(&maps(), &child("a")), Claim::Unknown);
    }

    #[test]
    fn claim_excludes_others_until_it_ends_with_nothing() {
        let existing = listed(&[]);
        assert_eq!(existing.claim(&maps(), &child("a")), Claim::Absent);
        assert_eq!(existing.claim(&maps(), &child("a")), Claim::Unknown);
        existing.settle(&maps(), &child("a"), Claim::Absent, None);
        assert_eq!(existing.claim(&maps(), &child("a")), Claim::Absent);
        existing.settle(&maps(), &child("a"), Claim::Absent, Some("7"));
        assert_eq!(existing.claim(&maps(), &child("a")), Claim::Unknown);
    }

    /// The event of an object's deletion may come after it was applied again.
    #[test]
    fn late_deletion_does_not_make_an_applied_object_absent() {
        let existing = listed(&[("a", "3")]);
        let claim = existing.claim(&maps(), &child("a"));
        existing.gone(&maps(), &child("a"), "4");
        assert_eq!(existing.claim(&maps(), &child("a")), Claim::Unknown);
        existing.settle(&maps(), &child("a"), claim, Some("6"));
        existing.gone(&maps(), &child("a"), "5");
        assert_eq!(existing.claim(&maps(), &child("a")), Claim::Unknown);
        existing.settle(&maps(), &child("a"), Claim::Unknown, Some("6"));
        existing.gone(&maps(), &child("a"), "7");
        assert_eq!(existing.claim(&maps(), &child("a")), Claim::Absent);
    }

    #[test]
    fn list_forgets_what_it_does_not_name_and_keeps_what_was_applied_meanwhile() {
        let existing = listed(&[("gone", "3"), ("stays", "4")]);
        existing.claim(&maps(), &child("new"));
        existing.settle(&maps(), &child("new"), Claim::Absent, Some("9"));
        existing.begin(&maps());
        existing.observe(&maps(), &child("stays"), "4", true);
        existing.observe(&maps(), &child("other"), "8", true);
        existing.complete(&maps());
        assert_eq!(existing.claim(&maps(), &child("gone")), Claim::Absent);
        for name in ["stays", "other", "new"] {
            assert_eq!(existing.claim(&maps(), &child(name)), Claim::Unknown, "{name}");
        }
    }
}
