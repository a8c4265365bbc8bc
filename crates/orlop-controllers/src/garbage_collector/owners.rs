//! States of owners that are known without a request.
//!
//! A pod changes a dozen times while it starts, and its ReplicaSet is there all the while. Once an owner has been found, its
//! dependents need no further request until the watch reports its deletion: that finds all of them by their owner's uid. An
//! owner that is gone stays so, since uids are never used again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::object::ObjectReference;

/// Owners that are remembered. Beyond that all are forgotten, and asked for again.
const OWNERS_MAX: usize = 4096;

/// State of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A request for it is under way.
    Requested,
    /// It was there after it had been requested, and no deletion has been observed since.
    Present,
    Absent,
}

/// States of owners by uid. A reference with another name or kind is another owner.
#[derive(Debug, Default)]
pub(super) struct KnownOwners(Mutex<HashMap<String, (ObjectReference, State)>>);

impl KnownOwners {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, (ObjectReference, State)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, owner: &ObjectReference, state: State) -> bool {
        self.lock().get(&owner.uid).is_some_and(|known| known.0 == *owner && known.1 == state)
    }

    /// Returns true if an owner exists, and its deletion would be observed.
    pub(super) fn is_present(&self, owner: &ObjectReference) -> bool {
        self.is(owner, State::Present)
    }

    /// Returns true if an owner does not exist, and never will.
    pub(super) fn is_absent(&self, owner: &ObjectReference) -> bool {
        self.is(owner, State::Absent)
    }

    /// Notes that an owner is about to be requested. A deletion that is observed from here on counts.
    pub(super) fn request(&self, owner: &ObjectReference) {
        let mut owners = self.lock();
        if owners.len() >= OWNERS_MAX {
            owners.clear();
        }
        owners.entry(owner.uid.clone()).or_insert_with(|| (owner.clone(), State::Requested));
    }

    /// Notes that a requested owner exists.
    pub(super) fn found(&self, owner: &ObjectReference) {
        if let Some((known, state @ State::Requested)) = self.lock().get_mut(&owner.uid)
            && *known == *owner
        {
            *state = State::Present;
        }
    }

    /// Notes that a requested owner does not exist.
    pub(super) fn not_found(&self, owner: &ObjectReference) {
        self.lock().insert(owner.uid.clone(), (owner.clone(), State::Absent));
    }

    /// Forgets an owner that was deleted, or is about to be.
    pub(super) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Forgets all owners: deletions may have been missed.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: &str) -> ObjectReference {
        let [api_version, kind, name] = ["apps/v1", "ReplicaSet", "web"].map(str::to_owned);
        ObjectReference {
            api_version,
            kind,
            namespace: Some("default".to_owned()),
            name,
            uid: uid.to_owned(),
        }
    }

    #[test]
    fn owner_deleted_while_it_is_requested_is_not_present() {
        let known = KnownOwners::default();
        known.request(&owner("a"));
        assert!(!known.is_present(&owner("a")), "not before the answer");
        known.found(&owner("a"));
        assert!(known.is_present(&owner("a")));
        known.forget("a");
        assert!(!known.is_present(&owner("a")));

        known.request(&owner("b"));
        known.forget("b");
        known.found(&owner("b"));
        assert!(!known.is_present(&owner("b")), "it was deleted in the meantime");
    }

    #[test]
    fn reference_of_another_name_is_another_owner() {
        let known = KnownOwners::default();
        known.not_found(&owner("a"));
        assert!(known.is_absent(&owner("a")));
        let other = ObjectReference { name: "other".to_owned(), ..owner("a") };
        assert!(!known.is_absent(&other));
        known.request(&other);
        known.found(&other);
        assert!(!known.is_present(&other), "one uid has one entry");
    }

    #[test]
    fn owners_are_bounded() {
        let known = KnownOwners::default();
        for number in 0..2 * OWNERS_MAX {
            known.request(&owner(&number.to_string()));
        }
        assert!(known.lock().len() <= OWNERS_MAX);
    }
}
