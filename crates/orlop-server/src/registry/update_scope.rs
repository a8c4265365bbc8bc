//! Update scopes of a kind's endpoints.

use std::collections::BTreeMap;

use orlop_api::managed_fields::Filter;
use orlop_kinds::{ResetFields, UpdateScope};

use super::Kind;

impl Kind {
    /// Returns the scope of writes through an endpoint; `subresource` is empty for the object itself.
    pub(crate) fn update_scope(&self, subresource: &str) -> UpdateScope {
        let own = self.update_scopes.iter().find(|(endpoint, _)| *endpoint == subresource);
        match (own, subresource) {
            (Some((_, scope)), _) => *scope,
            (None, "") if self.has_status() => UpdateScope::ALL_BUT_STATUS,
            (None, "status") if self.flags.custom => UpdateScope::CUSTOM_STATUS,
            (None, "status") => UpdateScope::STATUS,
            (None, _) => UpdateScope::EVERYTHING,
        }
    }

    /// Returns the fields that writes through an endpoint may own, by apiVersion.
    pub(crate) fn ownable_fields(&self, subresource: &str) -> BTreeMap<String, Filter> {
        let filter = match self.update_scope(subresource).reset {
            ResetFields::Paths([]) => return BTreeMap::new(),
            ResetFields::Paths(fields) => Filter::all_but(fields),
            ResetFields::AllExcept(fields) => Filter::only(fields),
        };
        self.reset_versions().into_iter().map(|version| (version, filter.clone())).collect()
    }
}
