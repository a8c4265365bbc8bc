//! ApplySets: which objects belong to an instance, recorded on the instance so that deletion needs no graph.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use crate::names;

/// Returns the id of the ApplySet of a parent.
pub(crate) fn id(name: &str, namespace: &str, kind: &str, group: &str) -> String {
    let digest = Sha256::digest(format!("{name}.{namespace}.{kind}.{group}"));
    format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(digest))
}

/// Group-kinds and namespaces that may hold members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inventory {
    /// `Kind.group`, or `Kind` in the core group.
    pub(crate) group_kinds: BTreeSet<String>,
    /// Namespaces beside the parent's.
    pub(crate) namespaces: BTreeSet<String>,
}

impl Inventory {
    /// Reads the inventory of an instance; `Ok(None)` if it has none.
    pub(crate) fn read(instance: &Json, id: &str) -> Result<Option<Self>, String> {
        let label = |key: &str| text(instance, "labels", key);
        let annotation = |key: &str| text(instance, "annotations", key);
        let found = [names::APPLYSET_TOOLING, names::APPLYSET_KINDS, names::APPLYSET_NAMESPACES];
        if label(names::APPLYSET_ID).is_none() && found.iter().all(|key| annotation(key).is_none()) {
            return Ok(None);
        }
        let stored = label(names::APPLYSET_ID).unwrap_or_default();
        if stored != id {
            return Err(format!("invalid {} label: got \"{stored}\", want \"{id}\"", names::APPLYSET_ID));
        }
        let required =
            |key: &str| annotation(key).ok_or_else(|| format!("missing required {key} annotation"));
        let tooling = required(names::APPLYSET_TOOLING)?;
        if !tooling.starts_with("kro/") {
            return Err(format!(
                "invalid {} annotation: \"{tooling}\" is not owned by kro",
                names::APPLYSET_TOOLING
            ));
        }
        let kinds = required(names::APPLYSET_KINDS)?;
        let namespaces = required(names::APPLYSET_NAMESPACES)?;
        if let Some(hash) = annotation(names::APPLYSET_HASH)
            && hash != checksum(id, kinds, namespaces)
        {
            return Err(format!("invalid {} annotation: checksum does not match", names::APPLYSET_HASH));
        }
        let split = |text: &str| text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Ok(Some(Self { group_kinds: split(kinds), namespaces: split(namespaces) }))
    }

    /// Reads what an invalid inventory names, so that it can be completed and written again.
    pub(crate) fn read_loosely(instance: &Json) -> Option<Self> {
        let annotation = |key: &str| text(instance, "annotations", key).unwrap_or_default();
        let split = |text: &str| text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let (kinds, namespaces) = (annotation(names::APPLYSET_KINDS), annotation(names::APPLYSET_NAMESPACES));
        Some(Self { group_kinds: split(kinds), namespaces: split(namespaces) })
    }

    /// Adds a member's kind and namespace; returns whether that was new.
    pub(crate) fn add(
        &mut self,
        group_kind: &str,
        namespace: Option<&str>,
        parent_namespace: Option<&str>,
    ) -> bool {
        let mut grown = self.group_kinds.insert(group_kind.to_owned());
        if let Some(namespace) = namespace
            && Some(namespace) != parent_namespace
        {
            grown |= self.namespaces.insert(namespace.to_owned());
        }
        grown
    }

    /// The annotations that record the inventory.
    pub(crate) fn annotations(&self, id: &str) -> Map<String, Json> {
        let join = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(",");
        let (kinds, namespaces) = (join(&self.group_kinds), join(&self.namespaces));
        let hash = checksum(id, &kinds, &namespaces);
        Map::from_iter([
            (names::APPLYSET_TOOLING.to_owned(), json!(format!("kro/{}", names::TOOL_VERSION))),
            (names::APPLYSET_KINDS.to_owned(), json!(kinds)),
            (names::APPLYSET_NAMESPACES.to_owned(), json!(namespaces)),
            (names::APPLYSET_HASH.to_owned(), json!(hash)),
        ])
    }
}

fn checksum(id: &str, kinds: &str, namespaces: &str) -> String {
    let digest = Sha256::digest(format!("{id}\0{kinds}\0{namespaces}"));
    format!("sha256:{}", URL_SAFE_NO_PAD.encode(digest))
}

fn text<'j>(object: &'j Json, field: &str, key: &str) -> Option<&'j str> {
    object.get("metadata")?.get(field)?.get(key)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inventory_survives_a_round_trip_and_detects_tampering() {
        let id = id("app", "default", "App", "kro.run");
        assert!(id.starts_with("applyset-") && id.ends_with("-v1"));
        let mut inventory = Inventory::default();
        assert!(inventory.add("ConfigMap", Some("default"), Some("default")));
        assert!(!inventory.add("ConfigMap", Some("default"), Some("default")));
        assert!(inventory.add("Deployment.apps", Some("other"), Some("default")));
        let labels = json!({names::APPLYSET_ID: id});
        let mut instance = json!({"metadata": {"labels": labels, "annotations": inventory.annotations(&id)}});
        assert_eq!(Inventory::read(&instance, &id), Ok(Some(inventory)));
        assert_eq!(Inventory::read(&json!({"metadata": {}}), &id), Ok(None));
        instance["metadata"]["annotations"][names::APPLYSET_KINDS] = json!("Secret");
        assert!(Inventory::read(&instance, &id).unwrap_err().contains("checksum"));
        assert!(
            Inventory::read(&instance, "other")
                .unwrap_err()
                .starts_with("invalid applyset.kubernetes.io/id label")
        );
    }
}
