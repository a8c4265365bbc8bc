//! GraphRevisions: numbered snapshots of a definition's spec.

use serde_json::{Value as Json, json};

use super::{Controller, now, revision_resource};
use crate::cluster::{Result, code};
use crate::conditions::{Conditions, Status};
use crate::definition::{DefinitionSpec, fnv1a32};
use crate::graph::Graph;
use crate::metrics::Count;
use crate::names;

/// Longest name of an object.
const NAME_MAX: usize = 253;

/// A stored revision.
#[derive(Clone, Debug)]
pub(super) struct Revision {
    pub(super) number: i64,
    pub(super) hash: String,
    pub(super) spec: Json,
    name: String,
    uid: String,
    /// Uid of the definition that owns it.
    owner: Option<String>,
}

impl Controller {
    /// Lists the revisions of a definition, newest first. Those being deleted do not count; a finalizer that kro left on
    /// them is removed.
    pub(super) async fn revisions(&self, definition: &str) -> Result<Vec<Revision>> {
        let fields = format!("spec.snapshot.name={definition}");
        let mut revisions = Vec::new();
        for object in self.cluster.list_where(&revision_resource(), None, "", &fields).await? {
            if object.pointer("/metadata/deletionTimestamp").is_none() {
                revisions.extend(read(&object));
                continue;
            }
            match self.remove_finalizer(&revision_resource(), &object).await {
                Ok(true) => self.metrics.count(Count::FinalizerEvictions, &[]),
                Ok(false) => {}
                // Gone or changed meanwhile, which its watch reports.
                Err(error) if matches!(code(&error), Some(404 | 409)) => {}
                Err(error) => return Err(error),
            }
        }
        revisions.sort_by_key(|revision| std::cmp::Reverse(revision.number));
        Ok(revisions)
    }

    /// Adopts revisions that outlived an earlier definition of this name (`kubectl delete --cascade=orphan`).
    pub(super) async fn adopt_revisions(&self, definition: &Json, revisions: &[Revision]) -> Result<()> {
        let uid = definition.pointer("/metadata/uid").and_then(Json::as_str).unwrap_or_default();
        for revision in revisions.iter().filter(|revision| revision.owner.as_deref() != Some(uid)) {
            // Its uid goes along, so that another revision of this name is left alone.
            let patch = json!({"metadata": {
                "uid": revision.uid, "ownerReferences": [owner_reference(definition)]}});
            match self.cluster.merge(&revision_resource(), None, &revision.name, &patch).await {
                Ok(_) => {}
                Err(error) if matches!(code(&error), Some(404 | 409)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Issues a revision and records that it compiles.
    pub(super) async fn issue_revision(
        &self,
        definition: &Json,
        spec: &DefinitionSpec,
        graph: &Graph,
        number: i64,
    ) -> Result<Revision> {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
        let name = text("/metadata/name");
        let hash = spec.hash();
        let object = json!({
            "apiVersion": names::REVISION_API_VERSION, "kind": "GraphRevision",
            "metadata": {
                "name": revision_name(name, number),
                "labels": {
                    names::OWNED: "true", names::CONTROLLER_VERSION: names::TOOL_VERSION,
                    names::DEFINITION_NAME: name, names::REVISION_HASH: hash},
                "ownerReferences": [owner_reference(definition)],
            },
            "spec": {"revision": number, "snapshot": {
                "name": name,
                "generation": definition.pointer("/metadata/generation").cloned().unwrap_or_default(),
                "spec": definition.get("spec").cloned().unwrap_or_default()}},
        });
        let mut created = self.cluster.create(&revision_resource(), None, &object).await?;
        let mut conditions = Conditions::read(&created, &["GraphVerified"], now());
        conditions.set("GraphVerified", Status::True, "Verified", "graph revision compiled and verified");
        created["status"] = json!({
            "topologicalOrder": graph.order, "resources": resources_status(graph),
            "conditions": conditions.finish()});
        self.cluster
            .replace_status(&revision_resource(), &created)
            .await
            .inspect_err(|_| self.metrics.count(Count::StatusErrors, &[]))?;
        Ok(read(&created).unwrap_or_else(|| Revision {
            number,
            hash,
            spec: Json::Null,
            name: revision_name(name, number),
            uid: String::new(),
            owner: None,
        }))
    }

    /// Deletes all but the newest revisions. A failure is left to the next pass.
    pub(super) async fn collect_revisions(&self, revisions: &[Revision]) {
        for revision in revisions.iter().skip(self.settings.revisions_max.max(1)) {
            let deleted =
                self.cluster.delete(&revision_resource(), None, &revision.name, &revision.uid).await;
            match deleted {
                Ok(_) => self.metrics.count(Count::RevisionsCollected, &[]),
                Err(error) => {
                    self.metrics.count(Count::CollectionErrors, &[]);
                    tracing::debug!(%error, revision = revision.name, "an old revision could not be deleted");
                }
            }
        }
    }
}

fn read(object: &Json) -> Option<Revision> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Json::as_str).map(str::to_owned);
    let spec = object.pointer("/spec/snapshot/spec")?.clone();
    Some(Revision {
        number: object.pointer("/spec/revision")?.as_i64()?,
        // Of the snapshot, not the label: kro counts in another way, and its revisions are not issued again.
        hash: DefinitionSpec::from_json(&spec).map(|spec| spec.hash()).unwrap_or_default(),
        spec,
        name: text("/metadata/name")?,
        uid: text("/metadata/uid")?,
        owner: object
            .pointer("/metadata/ownerReferences")
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
            .find(|owner| owner["controller"] == true)
            .and_then(|owner| owner["uid"].as_str())
            .map(str::to_owned),
    })
}

fn owner_reference(definition: &Json) -> Json {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    json!({
        "apiVersion": names::API_VERSION, "kind": "ResourceGraphDefinition", "name": text("/metadata/name"),
        "uid": text("/metadata/uid"), "controller": true})
}

/// Nodes with their dependencies, as definitions and revisions report them.
pub(super) fn resources_status(graph: &Graph) -> Json {
    let nodes = graph.nodes.iter().filter_map(|node| {
        let dependencies: Vec<Json> = graph.dependency_ids(node).map(|id| json!({"id": id})).collect();
        (!dependencies.is_empty()).then(|| json!({"id": node.id, "dependencies": dependencies}))
    });
    Json::Array(nodes.collect())
}

/// The name of a revision; a name that would be too long is cut and told apart by its hash.
fn revision_name(definition: &str, number: i64) -> String {
    let name = format!("{definition}-r{number:05}");
    if name.len() <= NAME_MAX {
        return name;
    }
    let suffix = format!("-r{number:05}-{:08x}", fnv1a32(name.as_bytes()));
    let mut stem: String = definition.chars().take(NAME_MAX - suffix.len()).collect();
    while stem.ends_with(['.', '-']) {
        stem.pop();
    }
    if stem.is_empty() {
        stem.push_str("gr");
    }
    format!("{stem}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_names_fit_object_names() {
        assert_eq!(revision_name("app", 7), "app-r00007");
        let long = revision_name(&"a".repeat(253), 123_456);
        assert!(long.len() <= NAME_MAX && long.contains("-r123456-"));
    }
}
