//! Kinds whose deletions are watched, and dependents whose owner is of a kind that is not watched yet.
//!
//! Seeing that an owner exists is worth something only if its deletion will be seen. A kind that has just been
//! defined, or is not known yet, is not watched at once, so its dependents are queued again as soon as it is.

use std::collections::{HashMap, HashSet};

use super::{group_kind::GroupKind, object::ObjectReference};

/// Watched kinds and the dependents of others.
#[derive(Debug, Default)]
pub(super) struct WatchedKinds {
    watched: HashSet<GroupKind>,
    unresolved: HashMap<GroupKind, HashSet<ObjectReference>>,
}

impl WatchedKinds {
    /// Remembers `dependent` unless its owner's kind is watched. To be called before the owner is read.
    pub(super) fn remember_unless_watched(&mut self, owner: GroupKind, dependent: &ObjectReference) {
        if !self.watched.contains(&owner) {
            self.unresolved.entry(owner).or_default().insert(dependent.clone());
        }
    }

    /// Returns the kinds that dependents are remembered for.
    pub(super) fn unresolved(&self) -> Vec<GroupKind> {
        self.unresolved.keys().cloned().collect()
    }

    /// Takes the dependents of a kind that is served now, and whose deletions are seen in the stream.
    pub(super) fn take_unresolved(&mut self, kind: &GroupKind) -> HashSet<ObjectReference> {
        self.unresolved.remove(kind).unwrap_or_default()
    }

    /// Marks a kind as watched. Returns the dependents to queue again.
    pub(super) fn start(&mut self, kind: GroupKind) -> HashSet<ObjectReference> {
        let unresolved = self.take_unresolved(&kind);
        self.watched.insert(kind);
        unresolved
    }

    /// Marks a kind as no longer watched.
    pub(super) fn stop(&mut self, kind: &GroupKind) {
        self.watched.remove(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependents_of_an_unwatched_kind_are_queued_again_once_it_is_watched() {
        let mut kinds = WatchedKinds::default();
        let dependent = ObjectReference {
            api_version: "v1".into(),
            kind: "Secret".into(),
            namespace: None,
            name: "s".into(),
            uid: "u".into(),
        };
        kinds.remember_unless_watched(GroupKind::of("example.com/v1", "Widget"), &dependent);
        // Of another version, but the same kind.
        let again = kinds.start(GroupKind::of("example.com/v2", "Widget"));
        assert!(again.contains(&dependent));
        kinds.remember_unless_watched(GroupKind::of("example.com/v1", "Widget"), &dependent);
        assert!(
            kinds.start(GroupKind::of("example.com/v1", "Widget")).is_empty(),
            "its deletion would be seen"
        );
        kinds.stop(&GroupKind::of("example.com/v1", "Widget"));
        kinds.remember_unless_watched(GroupKind::of("example.com/v1", "Widget"), &dependent);
        assert_eq!(kinds.start(GroupKind::of("example.com/v1", "Widget")).len(), 1);
    }
}
