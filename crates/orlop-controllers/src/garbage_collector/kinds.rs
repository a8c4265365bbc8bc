//! Which kinds are watched, and what was decided about objects of the others meanwhile.
//!
//! That an owner is there is only worth something if its end will be seen. A kind that has just come (or is
//! not known yet) is not watched at once, so whoever depends on an object of it is looked at again as soon as
//! it is.

use std::collections::{HashMap, HashSet};

use super::item::Item;

/// A kind, whatever its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupKind {
    pub(super) group: String,
    pub(super) kind: String,
}

impl GroupKind {
    pub(super) fn of(api_version: &str, kind: &str) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self { group: group.to_owned(), kind: kind.to_owned() }
    }
}

#[derive(Debug, Default)]
pub(super) struct Kinds {
    watched: HashSet<GroupKind>,
    unsettled: HashMap<GroupKind, HashSet<Item>>,
}

impl Kinds {
    /// To be called before an owner is looked for: unless its kind is watched, `dependent` comes up again.
    pub(super) fn asked(&mut self, owner: GroupKind, dependent: &Item) {
        if !self.watched.contains(&owner) {
            self.unsettled.entry(owner).or_default().insert(dependent.clone());
        }
    }

    /// The kinds whose objects are waited for.
    pub(super) fn unsettled(&self) -> Vec<GroupKind> {
        self.unsettled.keys().cloned().collect()
    }

    /// The kind has come, and the end of every object of it is seen. Returns what is to be looked at again.
    pub(super) fn settle(&mut self, kind: &GroupKind) -> HashSet<Item> {
        self.unsettled.remove(kind).unwrap_or_default()
    }

    /// From now on every end of an object of the kind is seen. Returns what is to be looked at again.
    pub(super) fn begin(&mut self, kind: GroupKind) -> HashSet<Item> {
        let unsettled = self.settle(&kind);
        self.watched.insert(kind);
        unsettled
    }

    /// The kind is not watched any more.
    pub(super) fn end(&mut self, kind: &GroupKind) {
        self.watched.remove(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_depends_on_a_kind_that_is_not_watched_comes_up_again() {
        let mut kinds = Kinds::default();
        let dependent = Item {
            api_version: "v1".into(),
            kind: "Secret".into(),
            namespace: None,
            name: "s".into(),
            uid: "u".into(),
        };
        kinds.asked(GroupKind::of("example.com/v1", "Widget"), &dependent);
        // Of another version, but the same kind.
        let again = kinds.begin(GroupKind::of("example.com/v2", "Widget"));
        assert!(again.contains(&dependent));
        kinds.asked(GroupKind::of("example.com/v1", "Widget"), &dependent);
        assert!(kinds.begin(GroupKind::of("example.com/v1", "Widget")).is_empty(), "its end would be seen");
        kinds.end(&GroupKind::of("example.com/v1", "Widget"));
        kinds.asked(GroupKind::of("example.com/v1", "Widget"), &dependent);
        assert_eq!(kinds.begin(GroupKind::of("example.com/v1", "Widget")).len(), 1);
    }
}
