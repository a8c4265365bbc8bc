//! Managed fields of the scale subresource.
//!
//! `scale` exposes one field of its object as `spec.replicas`; ownership of
//! it is stored with the object, under the object's path.

use crate::managed_fields::{Fields, ManagedFields, Manager, Path, Set, VersionedSet};
use std::collections::BTreeMap;

const SCALE_VERSION: &str = "autoscaling/v1";

/// Translates managed fields between an object and its scale.
#[derive(Clone, Debug)]
pub struct ScaleHandler {
    /// Replicas path by version of the object; `None` if a version has no scale.
    pub replicas_paths: BTreeMap<String, Option<Path>>,
    /// apiVersion of the object in this request.
    pub api_version: String,
}

fn scale_path() -> Path {
    Path::of_fields(&["spec", "replicas"])
}

impl ScaleHandler {
    /// Returns the managers of the replicas, for the scale.
    pub fn to_scale(&self, parent: &ManagedFields) -> ManagedFields {
        let mut scale = ManagedFields::default();
        for (manager, entry) in &parent.entries {
            let Some(Some(path)) = self.replicas_paths.get(&entry.api_version) else { continue };
            if entry.fields.has(path) {
                let fields = Fields::from_set(&Set::from_paths([scale_path()]));
                let entry = VersionedSet { api_version: SCALE_VERSION.to_owned(), fields, time: entry.time };
                scale.entries.insert(manager.clone(), entry);
            }
        }
        scale
    }

    /// Returns the object's managers after a write of its scale.
    ///
    /// New entries have no time, and changed ones keep theirs, as in Kubernetes. Kubernetes also splits the entry of an
    /// updater whose replicas did not change; here it stays whole.
    pub fn to_parent(&self, parent: &ManagedFields, mut scale: ManagedFields) -> ManagedFields {
        let mut result = ManagedFields::default();
        for (manager, entry) in &parent.entries {
            // The version is no longer served.
            let Some(path) = self.replicas_paths.get(&entry.api_version) else { continue };
            let owned = path.as_ref().filter(|path| entry.fields.has(path));
            let mut entry = entry.clone();
            if let Some(path) = owned
                && scale.entries.remove(&in_scale(manager)).is_none()
            {
                // The scale's writer took ownership of the replicas.
                entry.fields.subtract(&Set::from_paths([path.clone()]));
            }
            if !entry.fields.is_empty() {
                result.entries.insert(manager.clone(), entry);
            }
        }
        let own = self.replicas_paths.get(&self.api_version).cloned().flatten();
        for (manager, entry) in scale.entries {
            let Some(path) = own.clone().filter(|_| entry.fields.has(&scale_path())) else { continue };
            let fields = Fields::from_set(&Set::from_paths([path]));
            let mut manager = manager;
            if !manager.api_version.is_empty() {
                manager.api_version.clone_from(&self.api_version);
            }
            let time = parent.entries.get(&manager).and_then(|entry| entry.time);
            let entry = VersionedSet { api_version: self.api_version.clone(), fields, time };
            result.entries.insert(manager, entry);
        }
        result
    }
}

/// Returns the manager of a scale's fields. Managers that update are told apart by version.
fn in_scale(manager: &Manager) -> Manager {
    let mut manager = manager.clone();
    if !manager.api_version.is_empty() {
        SCALE_VERSION.clone_into(&mut manager.api_version);
    }
    manager
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed_fields::Operation;
    use crate::time::Time;

    const APPS: &str = "apps/v1";
    const THEN: Time = Time { unix_seconds: 1_700_000_000, nanoseconds: 0 };

    fn handler() -> ScaleHandler {
        let replicas = Path::of_fields(&["spec", "replicas"]);
        ScaleHandler {
            replicas_paths: BTreeMap::from([(APPS.to_owned(), Some(replicas))]),
            api_version: APPS.to_owned(),
        }
    }

    fn entry(api_version: &str, fields: &[&str], time: Option<Time>) -> VersionedSet {
        let paths = fields.iter().map(|field| Path::of_fields(&["spec", field]));
        VersionedSet {
            api_version: api_version.to_owned(),
            fields: Fields::from_set(&Set::from_paths(paths)),
            time,
        }
    }

    fn managed(entries: &[(Manager, VersionedSet)]) -> ManagedFields {
        ManagedFields { entries: entries.iter().cloned().collect() }
    }

    #[test]
    fn new_owner_of_replicas_has_an_entry_without_a_time() {
        let creator = Manager::new("creator", Operation::Update, APPS, "");
        let parent = managed(&[(creator.clone(), entry(APPS, &["paused", "replicas"], Some(THEN)))]);
        let scaler = |version: &str| Manager::new("scaler", Operation::Update, version, "scale");
        let scale = managed(&[(scaler(SCALE_VERSION), entry(SCALE_VERSION, &["replicas"], Some(THEN)))]);
        let expected = managed(&[
            (creator, entry(APPS, &["paused"], Some(THEN))),
            (scaler(APPS), entry(APPS, &["replicas"], None)),
        ]);
        assert_eq!(handler().to_parent(&parent, scale).encode(), expected.encode());
    }

    #[test]
    fn owner_of_unchanged_replicas_keeps_its_other_fields() {
        let creator = |version: &str| Manager::new("creator", Operation::Update, version, "");
        let parent = managed(&[(creator(APPS), entry(APPS, &["paused", "replicas"], Some(THEN)))]);
        let scale = managed(&[(creator(SCALE_VERSION), entry(SCALE_VERSION, &["replicas"], Some(THEN)))]);
        assert_eq!(handler().to_parent(&parent, scale).encode(), parent.encode());
    }
}
