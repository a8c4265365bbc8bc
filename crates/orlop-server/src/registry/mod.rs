//! Registry of kinds: built-in kinds, custom resources and kinds of a library's user. Routes, discovery and
//! OpenAPI are derived from it.

mod builtin;
mod codec;
pub(crate) mod encoding;
pub(crate) mod index;
mod kind;
pub mod remote;
mod update_scope;

use std::sync::{Arc, PoisonError, RwLock};

use orlop_api::group_version::GroupVersionKind;

pub use codec::Found;
pub(crate) use codec::{Encoded, has_protobuf};
pub(crate) use kind::prune;
pub use kind::{Convert, Kind, KindSchema, LazySchema, Retirement, StaticOrBoxed, Storage, Subresource};
pub use orlop_kinds::{
    DefaultStrategy, RequestContext, ResetFields, Strategy, StrategyFlags, UpdateScope, UpdateScopes,
};

/// An immutable set of kinds. A change makes a new one; a request uses the one it started with.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// Sorted by group, version and plural name.
    kinds: Vec<Arc<Kind>>,
}

impl Kinds {
    /// Returns every GA built-in kind.
    pub fn builtin() -> Self {
        let mut kinds = Self::default();
        builtin::kinds().into_iter().for_each(|kind| kinds.insert(kind));
        kinds
    }

    /// Inserts or replaces a kind.
    pub fn insert(&mut self, kind: impl Into<Arc<Kind>>) {
        let kind = kind.into();
        match self.place(&kind.gvk.group, &kind.gvk.version, &kind.resource) {
            Ok(place) => self.kinds[place] = kind,
            Err(place) => self.kinds.insert(place, kind),
        }
    }

    /// Removes a kind.
    pub fn remove(&mut self, group: &str, version: &str, resource: &str) {
        if let Ok(place) = self.place(group, version, resource) {
            self.kinds.remove(place);
        }
    }

    /// Returns the kind of a path.
    pub fn get(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Kind>> {
        self.place(group, version, resource).ok().and_then(|place| self.kinds.get(place))
    }

    /// Returns the index of a kind, or where it would be inserted.
    fn place(&self, group: &str, version: &str, resource: &str) -> Result<usize, usize> {
        let path = |kind: &Arc<Kind>| {
            let (gvk, wanted) = (&kind.gvk, (group, version, resource));
            (gvk.group.as_str(), gvk.version.as_str(), kind.resource.as_str()).cmp(&wanted)
        };
        self.kinds.binary_search_by(path)
    }

    /// Returns all kinds, sorted by group, version and plural name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.iter()
    }

    /// Returns the kind that serves objects of a group and kind, in the given version if that is served.
    pub fn serving(&self, gvk: &GroupVersionKind) -> Option<&Arc<Kind>> {
        let of_kind = |kind: &&Arc<Kind>| kind.gvk.group == gvk.group && kind.gvk.kind == gvk.kind;
        self.iter().filter(of_kind).max_by_key(|kind| kind.gvk.version == gvk.version)
    }

    /// Returns the kinds of a group version, sorted by plural name.
    pub fn of_version(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<Kind>> {
        let (Ok(first) | Err(first)) = self.place(group, version, "");
        let (group, version) = (group.to_owned(), version.to_owned());
        self.kinds
            .iter()
            .skip(first)
            .take_while(move |kind| kind.gvk.group == group && kind.gvk.version == version)
    }

    /// Returns true for a group of built-in kinds.
    pub fn has_builtin_group(&self, group: &str) -> bool {
        self.iter().any(|kind| kind.gvk.group == group && matches!(kind.schema, KindSchema::Builtin(_)))
    }

    /// Returns true if a group version has any kind.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.of_version(group, version).next().is_some()
    }
}

/// The kinds of one cluster, which change at run time.
#[derive(Debug)]
pub struct Registry(RwLock<Arc<Kinds>>);

impl Registry {
    /// Returns a registry of kinds.
    pub fn new(kinds: Kinds) -> Self {
        Self(RwLock::new(Arc::new(kinds)))
    }

    /// Returns the current kinds.
    pub fn kinds(&self) -> Arc<Kinds> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the kinds. Requests that start after this returns see the change.
    pub fn change(&self, change: impl FnOnce(&mut Kinds)) {
        let mut guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut kinds = (**guard).clone();
        change(&mut kinds);
        *guard = Arc::new(kinds);
    }
}
