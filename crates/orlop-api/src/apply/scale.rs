//! Managed fields of the scale subresource.
//!
//! `scale` exposes one field of its object as `spec.replicas`; ownership of
//! it is stored with the object, under the object's path.

use crate::managed_fields::{Fields, ManagedFields, Path, Set, VersionedSet};
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
    pub fn to_parent(&self, parent: &ManagedFields, mut scale: ManagedFields) -> ManagedFields {
        let mut result = ManagedFields::default();
        for (manager, entry) in &parent.entries {
            // The version is no longer served.
            let Some(path) = self.replicas_paths.get(&entry.api_version) else { continue };
            let owned = path.as_ref().filter(|path| entry.fields.has(path));
            let mut entry = entry.clone();
            if let Some(path) = owned
                && scale.entries.remove(manager).is_none()
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
            let entry = VersionedSet { api_version: self.api_version.clone(), fields, time: entry.time };
            result.entries.insert(manager, entry);
        }
        result
    }
}
