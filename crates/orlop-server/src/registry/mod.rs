//! Which kinds there are. One registry serves built-in kinds, custom resources and kinds of a library's
//! user; routes, discovery and OpenAPI are all read from it.

mod builtin;
pub(crate) mod encoding;
pub(crate) mod index;
mod kind;
pub mod remote;
mod storage;
mod update_scope;

use std::sync::{Arc, PoisonError, RwLock};

use orlop_api::group_version::GroupVersionKind;

pub use kind::{Kind, KindSchema, LazySchema, Retirement, StaticOrBoxed, Subresource};
pub use orlop_kinds::{
    DefaultStrategy, RequestContext, ResetFields, Strategy, StrategyFlags, UpdateScope, UpdateScopes,
};
pub use storage::{Convert, Found, Storage};
pub(crate) use storage::{Encoded, has_protobuf};

/// The kinds at one moment. A change makes a new one; requests keep the one they began with.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// Sorted by group, version and plural name.
    kinds: Vec<Arc<Kind>>,
}

impl Kinds {
    /// Every GA built-in kind.
    pub fn builtin() -> Self {
        let mut kinds = Self::default();
        builtin::kinds().into_iter().for_each(|kind| kinds.insert(kind));
        kinds
    }

    /// Adds a kind, or replaces it.
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

    /// The kind of a path.
    pub fn get(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Kind>> {
        self.place(group, version, resource).ok().and_then(|place| self.kinds.get(place))
    }

    /// Where a kind is, or would be.
    fn place(&self, group: &str, version: &str, resource: &str) -> Result<usize, usize> {
        let path = |kind: &Arc<Kind>| {
            let (gvk, wanted) = (&kind.gvk, (group, version, resource));
            (gvk.group.as_str(), gvk.version.as_str(), kind.resource.as_str()).cmp(&wanted)
        };
        self.kinds.binary_search_by(path)
    }

    /// Every kind, sorted by group, version and plural name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.iter()
    }

    /// The kind that serves objects of a group, version and kind: in that version, if it is served.
    pub fn serving(&self, gvk: &GroupVersionKind) -> Option<&Arc<Kind>> {
        let of_kind = |kind: &&Arc<Kind>| kind.gvk.group == gvk.group && kind.gvk.kind == gvk.kind;
        self.iter().filter(of_kind).max_by_key(|kind| kind.gvk.version == gvk.version)
    }

    /// The kinds of a group and version, sorted by plural name.
    pub fn of_version(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<Kind>> {
        let (Ok(first) | Err(first)) = self.place(group, version, "");
        let (group, version) = (group.to_owned(), version.to_owned());
        self.kinds
            .iter()
            .skip(first)
            .take_while(move |kind| kind.gvk.group == group && kind.gvk.version == version)
    }

    /// Whether a group is one of those that came with the program.
    pub fn has_builtin_group(&self, group: &str) -> bool {
        self.iter().any(|kind| kind.gvk.group == group && matches!(kind.schema, KindSchema::Builtin(_)))
    }

    /// Whether a group and version has any kind.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.of_version(group, version).next().is_some()
    }
}

/// The kinds of one cluster, which change while it runs.
#[derive(Debug)]
pub struct Registry(RwLock<Arc<Kinds>>);

impl Registry {
    /// A registry that begins with these kinds.
    pub fn new(kinds: Kinds) -> Self {
        Self(RwLock::new(Arc::new(kinds)))
    }

    /// The kinds now.
    pub fn kinds(&self) -> Arc<Kinds> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the kinds. Requests that begin after this returns see the change.
    pub fn change(&self, change: impl FnOnce(&mut Kinds)) {
        let mut guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut kinds = (**guard).clone();
        change(&mut kinds);
        *guard = Arc::new(kinds);
    }
}
