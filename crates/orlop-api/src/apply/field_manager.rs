//! The field manager: the API server's entry point.

use super::conflicts::conflict_status;
use super::last_applied;
use super::typed::validate;
use super::updater::{UpdateError, Updater, VersionConverter};
use crate::group_version::GroupVersionKind;
use crate::managed_fields::{
    Fields, Filter, ManagedFields, Manager, Operation, Path, Set, VersionedSet, entries,
};
use crate::object_meta;
use crate::status::Status;
use crate::time::Time;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Limit on managers with operation Update; the oldest are merged.
pub const UPDATE_MANAGERS_MAX: usize = 10;
const OLD_UPDATES_MANAGER: &str = "ancient-changes";
const BEFORE_APPLY_MANAGER: &str = "before-first-apply";

/// Fields that are never tracked: they identify the object, or the server owns them.
static UNTRACKED: LazyLock<Set> = LazyLock::new(|| {
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let top = ["apiVersion", "kind", "metadata"].map(|name| Path::of_fields(&[name]));
    Set::from_paths(top.into_iter().chain(metadata.map(|name| Path::of_fields(&["metadata", name]))))
});

/// Field manager of one endpoint: a kind in a version, or a subresource of it.
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    pub kind: &'a GroupVersionKind,
    pub versions: &'a dyn VersionConverter,
    /// Empty for the object itself, else `status`, `scale`…
    pub subresource: &'a str,
    /// By version: the fields that this endpoint does not reset.
    pub owned_fields: &'a BTreeMap<String, Filter>,
}

impl std::fmt::Debug for FieldManager<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FieldManager")
            .field("kind", self.kind)
            .field("subresource", &self.subresource)
            .finish_non_exhaustive()
    }
}

/// Result of an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied<'a> {
    /// The object to store, with managedFields; borrowed if nothing changed.
    pub object: Cow<'a, Value>,
    /// False if only managedFields changed.
    pub changed: bool,
}

impl FieldManager<'_> {
    fn manager(&self, name: &str, operation: Operation) -> Manager {
        Manager::new(name, operation, &self.kind.api_version(), self.subresource)
    }

    /// Tracks a create, update or patch. On an error managedFields stay
    /// unchanged: tracking never fails a write.
    pub fn update(&self, live: &Value, mut new: Value, manager: &str, now: Time) -> Value {
        let managed = self.take_managers(live, &mut new);
        match self.track_update(live, &new, managed, manager, now) {
            Ok(managed) => managed.store(&mut new),
            Err(_) => {
                if let Ok(managed) = ManagedFields::of(live) {
                    managed.store(&mut new);
                }
            }
        }
        new
    }

    /// Returns the initial managers: the client's if valid, else the live ones.
    fn take_managers(&self, live: &Value, new: &mut Value) -> ManagedFields {
        let of_live = || ManagedFields::of(live).unwrap_or_default();
        let is_reset = entries::is_reset(new);
        let of_new = ManagedFields::take(new);
        if !self.subresource.is_empty() {
            return of_live();
        }
        if is_reset {
            return ManagedFields::default();
        }
        match of_new {
            Ok(managed) if !managed.entries.is_empty() => managed,
            _ => of_live(),
        }
    }

    fn track_update(
        &self,
        live: &Value,
        new: &Value,
        managed: ManagedFields,
        manager: &str,
        now: Time,
    ) -> Result<ManagedFields, String> {
        // An object without managedFields is tracked only after the first apply.
        if managed.entries.is_empty() && !object_meta::text(object_meta::of(live), "uid").is_empty() {
            return Ok(managed);
        }
        let mut managed = self.take_changes(live, new, managed, manager, now)?;
        cap_update_managers(&mut managed);
        Ok(managed)
    }

    /// Assigns changed fields to the writer, and updates its time if there are any.
    fn take_changes(
        &self,
        live: &Value,
        new: &Value,
        mut managed: ManagedFields,
        manager: &str,
        now: Time,
    ) -> Result<ManagedFields, String> {
        let api_version = self.kind.api_version();
        let updater =
            Updater { versions: self.versions, api_version: &api_version, owned_fields: self.owned_fields };
        let taken = updater.update(live, new, &mut managed).map_err(|error| match error {
            UpdateError::Failed(why) => why,
            UpdateError::Conflicts(_) => "unexpected conflict".to_owned(),
        })?;
        let taken = taken.difference(&UNTRACKED);
        if !taken.is_empty() {
            let manager = self.manager(manager, Operation::Update);
            let none =
                VersionedSet { api_version: api_version.clone(), fields: Fields::default(), time: None };
            let entry = managed.entries.entry(manager).or_insert(none);
            entry.fields.add(&taken);
            entry.api_version = api_version;
            entry.time = Some(now);
        }
        Ok(managed)
    }

    /// Applies a configuration to the live object, or creates one.
    pub fn apply<'v>(
        &self,
        stored: Option<&'v Value>,
        config: &Value,
        manager: &str,
        force: bool,
        now: Time,
    ) -> Result<Applied<'v>, Status> {
        self.check_config(config)?;
        let empty = json!({"apiVersion": self.kind.api_version(), "kind": self.kind.kind});
        let live = stored.unwrap_or(&empty);
        let managed = ManagedFields::of(live)
            .map_err(|error| Status::plain(format!("failed to decode managed fields: {error}")))?;
        // Only kubectl migrates from client-side apply.
        let spare =
            if manager == last_applied::KUBECTL_MANAGER { managed.clone() } else { ManagedFields::default() };
        let applied = match self.apply_to(live, config, managed, manager, force, now) {
            Err(UpdateError::Conflicts(conflicts)) if manager == last_applied::KUBECTL_MANAGER => {
                let api_version = self.kind.api_version();
                let of = self.versions.type_of(&api_version);
                match of.and_then(|of| last_applied::untouched_fields(live, of, &api_version)) {
                    None => Err(UpdateError::Conflicts(conflicts)),
                    Some(untouched) => match last_applied::remaining(conflicts, &untouched) {
                        remaining if remaining.is_empty() => {
                            self.apply_to(live, config, spare, manager, true, now)
                        }
                        remaining => Err(UpdateError::Conflicts(remaining)),
                    },
                }
            }
            other => other,
        };
        let (object, managed) = applied.map_err(|error| match error {
            UpdateError::Conflicts(conflicts) => conflict_status(&conflicts),
            UpdateError::Failed(why) => Status::plain(why),
        })?;
        let mut changed = object.is_some();
        let list = managed.encode();
        if manager != last_applied::KUBECTL_MANAGER
            && !changed
            && let Some(stored) = stored
            && object_meta::of(stored)
                .get("managedFields")
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice)
                == list
        {
            return Ok(Applied { object: Cow::Borrowed(stored), changed });
        }
        let mut object = object.unwrap_or_else(|| live.clone());
        if manager == last_applied::KUBECTL_MANAGER {
            changed |= last_applied::refresh(&mut object, config);
        }
        entries::store_list(list, &mut object);
        Ok(Applied { object: Cow::Owned(object), changed })
    }

    fn check_config(&self, config: &Value) -> Result<(), Status> {
        let kind = GroupVersionKind::of(config);
        if kind != *self.kind {
            return Err(Status::bad_request(format!("invalid object type: {kind}")));
        }
        if object_meta::of(config).get("managedFields").is_some_and(|fields| !fields.is_null()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        let api_version = self.kind.api_version();
        let Some(of) = self.versions.type_of(&api_version) else {
            return Err(Status::plain(format!("no corresponding type for {}", self.kind)));
        };
        validate(config, of, false).map_err(|error| {
            let meta = object_meta::of(config);
            let (namespace, name) = (object_meta::text(meta, "namespace"), object_meta::text(meta, "name"));
            Status::plain(format!(
                "failed to create typed patch object ({namespace}/{name}; {}): {error}",
                self.kind
            ))
        })
    }

    fn apply_to(
        &self,
        live: &Value,
        config: &Value,
        mut managed: ManagedFields,
        manager: &str,
        force: bool,
        now: Time,
    ) -> Result<(Option<Value>, ManagedFields), UpdateError> {
        if managed.entries.is_empty() {
            // Fields from before the first apply belong to a manager of their own.
            let empty = json!({"apiVersion": self.kind.api_version(), "kind": self.kind.kind});
            managed = self.take_changes(&empty, live, managed, BEFORE_APPLY_MANAGER, now).map_err(|why| {
                UpdateError::Failed(format!("failed to create manager for existing fields: {why}"))
            })?;
        }
        let api_version = self.kind.api_version();
        let updater =
            Updater { versions: self.versions, api_version: &api_version, owned_fields: self.owned_fields };
        let manager = self.manager(manager, Operation::Apply);
        let object = updater.apply(live, config, &mut managed, &manager, &UNTRACKED, force)?;
        if let Some(entry) = managed.entries.get_mut(&manager).filter(|_| object.is_some()) {
            entry.time = Some(now);
        }
        Ok((object, managed))
    }
}

/// Merges the oldest Update managers of a version until at most the limit is left.
fn cap_update_managers(managed: &mut ManagedFields) {
    let mut updaters: Vec<_> =
        managed.entries.keys().filter(|manager| manager.operation == Operation::Update).cloned().collect();
    let mut count = updaters.len();
    if count <= UPDATE_MANAGERS_MAX {
        return;
    }
    let seconds = |manager: &Manager| {
        managed.entries.get(manager).and_then(|entry| entry.time).map_or(0, |time| time.unix_seconds)
    };
    updaters.sort_by_cached_key(|manager| (seconds(manager), manager.clone()));
    let mut first_of_version: BTreeMap<String, Manager> = BTreeMap::new();
    for manager in updaters {
        if count <= UPDATE_MANAGERS_MAX {
            break;
        }
        let Some(entry) = managed.entries.get(&manager).cloned() else { continue };
        let bucket = Manager::new(OLD_UPDATES_MANAGER, Operation::Update, &entry.api_version, "");
        let Some(first) = first_of_version.get(&entry.api_version) else {
            first_of_version.insert(entry.api_version.clone(), manager);
            continue;
        };
        if !managed.entries.contains_key(&bucket)
            && let Some(first) = managed.entries.remove(first)
        {
            managed.entries.insert(bucket.clone(), first);
        }
        managed.entries.remove(&manager);
        if let Some(old) = managed.entries.get_mut(&bucket) {
            old.fields.add(&entry.fields.to_set());
            old.time = entry.time;
        }
        count -= 1;
    }
}
