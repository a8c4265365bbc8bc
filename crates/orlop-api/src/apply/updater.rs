//! The updater: computes ownership after a write (SMD's merge.Updater).

use super::compare::{Comparison, compare};
use super::conflicts::Conflict;
use super::merge::{Merged, merge, merge_changes};
use super::reconcile::{reconcile, with_named_fields};
use super::remove::remove_items;
use super::to_field_set::to_field_set;
use super::typed::{TypeErrors, TypeRef};
use crate::managed_fields::{Fields, Filter, ManagedFields, Manager, Set, VersionedSet};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Types of a kind's versions, and conversion between them.
pub trait VersionConverter: Sync {
    /// Returns the type of a version; `None` if it is not served.
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>>;

    /// Converts an object to a version.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConversionError>;
}

/// Error of converting an object to a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// The version is gone; its managers are removed.
    #[error("no such version: {0}")]
    MissingVersion(String),
    #[error("{0}")]
    Failed(String),
}

/// A kind with one version.
#[derive(Clone, Copy, Debug)]
pub struct SingleVersion<'a> {
    pub api_version: &'a str,
    pub of: TypeRef<'a>,
}

impl VersionConverter for SingleVersion<'_> {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>> {
        (api_version == self.api_version).then_some(self.of)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConversionError> {
        if api_version == self.api_version {
            return Ok(object.clone());
        }
        Err(ConversionError::MissingVersion(api_version.to_owned()))
    }
}

/// Error of updating managed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpdateError {
    Conflicts(Vec<Conflict>),
    Failed(String),
}

impl UpdateError {
    fn failed(what: &str, error: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }
}

/// Updater of one write: the request's version and its reset fields.
pub(crate) struct Updater<'a> {
    pub(crate) versions: &'a dyn VersionConverter,
    pub(crate) api_version: &'a str,
    /// By version: the fields that this endpoint does not reset.
    pub(crate) owned_fields: &'a BTreeMap<String, Filter>,
}

impl Updater<'_> {
    fn type_of(&self, api_version: &str) -> Result<TypeRef<'_>, UpdateError> {
        let missing = || UpdateError::Failed(format!("no corresponding type for {api_version}"));
        self.versions.type_of(api_version).ok_or_else(missing)
    }

    /// Converts an object; `None` if the version is gone.
    fn converted<'v>(
        &self,
        object: &'v Value,
        from: &str,
        to: &str,
    ) -> Result<Option<Cow<'v, Value>>, UpdateError> {
        if from == to {
            return Ok(Some(Cow::Borrowed(object)));
        }
        match self.versions.convert(object, to) {
            Ok(_) if self.versions.type_of(to).is_none() => Ok(None),
            Ok(converted) => Ok(Some(Cow::Owned(converted))),
            Err(ConversionError::MissingVersion(_)) => Ok(None),
            Err(ConversionError::Failed(error)) => {
                Err(UpdateError::failed("failed to convert object", error))
            }
        }
    }

    fn without_reset(&self, set: Set, api_version: &str) -> Set {
        match self.owned_fields.get(api_version) {
            Some(filter) => filter.apply(set),
            None => set,
        }
    }

    fn comparison(&self, old: &Value, new: &Value, api_version: &str) -> Result<Comparison, UpdateError> {
        let of = self.type_of(api_version)?;
        let comparison =
            compare(old, new, of).map_err(|error| UpdateError::failed("failed to compare objects", error))?;
        Ok(match self.owned_fields.get(api_version) {
            Some(filter) => comparison.passed(filter),
            None => comparison,
        })
    }

    /// Removes sets of missing versions and reconciles sets with the current schema.
    fn reconcile(&self, managed: &mut ManagedFields) {
        managed.entries.retain(|_, entry| {
            let Some(of) = self.versions.type_of(&entry.api_version) else { return false };
            reconcile(&mut entry.fields, of);
            true
        });
    }

    /// Updates ownership after a forced write: the writer owns what it added or changed.
    /// Returns what the writer took and did away with.
    pub(crate) fn update(
        &self,
        live: &Value,
        new: &Value,
        managed: &mut ManagedFields,
    ) -> Result<Set, UpdateError> {
        self.reconcile(managed);
        let comparison = self.update_ownership(live, new, managed, None, true)?;
        let taken = comparison.modified.union(&comparison.added);
        Ok(self.without_reset(taken, self.api_version))
    }

    /// Applies a configuration to the live object; `None` if nothing changes.
    pub(crate) fn apply(
        &self,
        live: &Value,
        config: &Value,
        managed: &mut ManagedFields,
        manager: &Manager,
        untracked: &Set,
        force: bool,
    ) -> Result<Option<Value>, UpdateError> {
        self.reconcile(managed);
        let of = self.type_of(self.api_version)?;
        let failed_merge = |error: TypeErrors| UpdateError::failed("failed to merge config", error);
        let merged = merge_changes(live, config, of).map_err(failed_merge)?;
        let merged = match merged {
            Merged::Unchanged => Cow::Borrowed(live),
            Merged::Changed(merged) => Cow::Owned(merged),
            Merged::Removed => Cow::Owned(Value::Object(serde_json::Map::new())),
        };
        let set = to_field_set(config, of)
            .map_err(|error| UpdateError::failed("failed to get field set", error))?;
        let mut set = self.without_reset(set, self.api_version);
        set.subtract(untracked);
        let last = managed.entries.get(manager);
        let merged = match last {
            // The same configuration in the same version: nothing to prune.
            Some(last) if last.api_version == self.api_version && last.fields.is(&set) => merged,
            _ => {
                let time = last.and_then(|entry| entry.time);
                let entry = VersionedSet {
                    api_version: self.api_version.to_owned(),
                    fields: Fields::from_set(&set),
                    time,
                };
                match managed.entries.insert(manager.clone(), entry) {
                    Some(last) if !last.fields.is_empty() => {
                        let pruned = self.prune(merged.into_owned(), managed, &set, &last)?;
                        // Pruning removes emptied containers; those in the configuration stay.
                        Cow::Owned(merge(&pruned, config, of).map_err(failed_merge)?)
                    }
                    _ => merged,
                }
            }
        };
        self.update_ownership(live, &merged, managed, Some(manager), force)?;
        Ok(match merged {
            Cow::Owned(merged) if merged != *live => Some(merged),
            _ => None,
        })
    }

    /// Removes changed fields from other managers. Without force, those are conflicts.
    fn update_ownership(
        &self,
        live: &Value,
        new: &Value,
        managed: &mut ManagedFields,
        writer: Option<&Manager>,
        force: bool,
    ) -> Result<Comparison, UpdateError> {
        let own = self.comparison(live, new, self.api_version)?;
        let mut by_version: BTreeMap<String, Option<Comparison>> = BTreeMap::new();
        let others = |manager: &Manager| Some(manager) != writer;
        for (_, entry) in managed.entries.iter().filter(|(manager, _)| others(manager)) {
            if entry.api_version == self.api_version || by_version.contains_key(&entry.api_version) {
                continue;
            }
            let old = self.converted(live, self.api_version, &entry.api_version)?;
            let new = self.converted(new, self.api_version, &entry.api_version)?;
            let comparison = match (old, new) {
                (Some(old), Some(new)) => Some(self.comparison(&old, &new, &entry.api_version)?),
                _ => None,
            };
            by_version.insert(entry.api_version.clone(), comparison);
        }
        managed.entries.retain(|manager, entry| {
            !others(manager) || by_version.get(&entry.api_version).is_none_or(Option::is_some)
        });
        let comparison_for =
            |api_version: &str| by_version.get(api_version).and_then(Option::as_ref).unwrap_or(&own);
        if !force {
            let mut conflicts = Vec::new();
            for (manager, entry) in managed.entries.iter().filter(|(manager, _)| others(manager)) {
                let comparison = comparison_for(&entry.api_version);
                let taken = entry
                    .fields
                    .intersection(&comparison.modified)
                    .union(&entry.fields.intersection(&comparison.added));
                conflicts.extend(
                    taken.paths().into_iter().map(|path| Conflict { manager: manager.clone(), path }),
                );
            }
            if !conflicts.is_empty() {
                return Err(UpdateError::Conflicts(conflicts));
            }
        }
        for (_, entry) in managed.entries.iter_mut().filter(|(manager, _)| others(manager)) {
            let comparison = comparison_for(&entry.api_version);
            for gone in [&comparison.modified, &comparison.added, &comparison.removed] {
                entry.fields.subtract(gone);
            }
        }
        managed.entries.retain(|_, entry| !entry.fields.is_empty());
        Ok(own)
    }

    /// Removes fields that the manager applied last time but not now, unless another manager owns them.
    fn prune(
        &self,
        merged: Value,
        managed: &ManagedFields,
        set: &Set,
        last: &VersionedSet,
    ) -> Result<Value, UpdateError> {
        let last_set = last.fields.to_set();
        // Nothing to prune if everything owned before is owned again.
        if last.api_version == self.api_version && last_set.difference(set).is_empty() {
            return Ok(merged);
        }
        let Some(in_last) = self.converted(&merged, self.api_version, &last.api_version)? else {
            return Ok(merged);
        };
        let of = self.type_of(&last.api_version)?;
        let last_named = with_named_fields(&last_set, Some(of));
        let pruned = remove_items(&in_last, &last_named, of);
        let pruned = self.add_back_owned(&in_last, pruned, &last.api_version, managed)?;
        // Only fields that the manager itself applied are removed.
        let gone = self.named_set(&in_last, of)?.difference(&self.named_set(&pruned, of)?);
        let pruned = remove_items(&in_last, &gone.intersection(&last_named), of);
        match self.converted(&pruned, &last.api_version, self.api_version)? {
            Some(Cow::Owned(pruned)) => Ok(pruned),
            _ => Ok(pruned),
        }
    }

    fn named_set(&self, object: &Value, of: TypeRef<'_>) -> Result<Set, UpdateError> {
        let set = to_field_set(object, of)
            .map_err(|error| UpdateError::failed("failed to create field set", error))?;
        Ok(with_named_fields(&set, Some(of)))
    }

    /// Adds back fields that any manager owns, version by version, the pruned version first.
    fn add_back_owned(
        &self,
        merged: &Value,
        pruned: Value,
        api_version: &str,
        managed: &ManagedFields,
    ) -> Result<Value, UpdateError> {
        let mut owned: BTreeMap<&str, Set> = BTreeMap::new();
        for entry in managed.entries.values() {
            let set = owned.entry(&entry.api_version).or_default();
            *set = set.union(&entry.fields.to_set());
        }
        let mut pruned = pruned;
        if let Some(set) = owned.remove(api_version) {
            pruned = self.add_back(merged, &pruned, &set, self.type_of(api_version)?)?;
        }
        for (version, set) in owned {
            let merged = self.converted(merged, api_version, version)?;
            let converted = self.converted(&pruned, api_version, version)?;
            let (Some(merged), Some(converted)) = (merged, converted) else { continue };
            let kept = self.add_back(&merged, &converted, &set, self.type_of(version)?)?;
            if let Some(Cow::Owned(back)) = self.converted(&kept, version, api_version)? {
                pruned = back;
            }
        }
        Ok(pruned)
    }

    fn add_back(
        &self,
        merged: &Value,
        pruned: &Value,
        owned: &Set,
        of: TypeRef<'_>,
    ) -> Result<Value, UpdateError> {
        let keep = self.named_set(pruned, of)?.union(&with_named_fields(owned, Some(of)));
        Ok(remove_items(merged, &self.named_set(merged, of)?.difference(&keep), of))
    }
}
