//! ControllerRevisions: the templates that a StatefulSet or DaemonSet has had.

use std::sync::Arc;

use k8s_openapi::{
    api::{apps::v1::ControllerRevision, core::v1::PodTemplateSpec},
    apimachinery::pkg::runtime::RawExtension,
};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    runtime::Informer,
    status::{is_already_exists, is_not_found},
};

/// Returns the data of a template's revision: a strategic merge patch that restores it.
pub(crate) fn data_of(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// Returns the template of a revision.
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    serde_json::from_value(revision.data.0.pointer("/spec/template")?.clone()).ok()
}

/// Sorts revisions, the oldest first.
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by_key(|revision| {
        let created = revision.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (number(revision), created, revision.name_any())
    });
}

/// Returns a revision's number.
pub(crate) fn number(revision: &ControllerRevision) -> i64 {
    revision.revision.unwrap_or(0)
}

/// Result of making a revision the newest.
#[derive(Debug)]
pub(crate) enum Synced {
    /// It exists.
    Revision(Arc<ControllerRevision>),
    /// Another object has its name: it needs another hash.
    Collision,
}

/// Makes `wanted` the newest of the revisions: an equal one gets the highest number, else it is created.
pub(crate) async fn sync(
    client: &Client,
    informer: &Informer<ControllerRevision>,
    namespace: &str,
    revisions: &[Arc<ControllerRevision>],
    mut wanted: ControllerRevision,
) -> orlop_client::Result<Synced> {
    let api: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    let next = revisions.iter().map(|revision| number(revision)).max().unwrap_or(0) + 1;
    let equal = revisions.iter().rev().find(|revision| revision.data == wanted.data);
    if let Some(equal) = equal {
        if number(equal) == next - 1 {
            return Ok(Synced::Revision(equal.clone()));
        }
        let mut raised = ControllerRevision::clone(equal);
        raised.revision = Some(next);
        let written = api.replace(&raised.name_any(), &PostParams::default(), &raised).await?;
        informer.wrote(written.clone());
        return Ok(Synced::Revision(Arc::new(written)));
    }
    wanted.revision = Some(next);
    match api.create(&PostParams::default(), &wanted).await {
        Ok(created) => {
            informer.wrote(created.clone());
            Ok(Synced::Revision(Arc::new(created)))
        }
        Err(error) if is_already_exists(&error) => match api.get_opt(&wanted.name_any()).await? {
            Some(existing) if existing.data == wanted.data => Ok(Synced::Revision(Arc::new(existing))),
            _ => Ok(Synced::Collision),
        },
        Err(error) => Err(error),
    }
}

/// Deletes the oldest revisions that are not in use, beyond a limit.
pub(crate) async fn truncate(
    client: &Client,
    informer: &Informer<ControllerRevision>,
    namespace: &str,
    revisions: &[Arc<ControllerRevision>],
    limit: i32,
    is_live: impl Fn(&ControllerRevision) -> bool,
) -> orlop_client::Result<()> {
    let api: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    let history: Vec<&Arc<ControllerRevision>> =
        revisions.iter().filter(|revision| !is_live(revision)).collect();
    let surplus = history.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    for revision in history.into_iter().take(surplus) {
        match api.delete(&revision.name_any(), &DeleteParams::default()).await {
            Err(error) if !is_not_found(&error) => return Err(error),
            _ => informer.deleted(revision),
        }
    }
    Ok(())
}

/// Returns the data of a revision as the API has it.
pub(crate) fn raw(data: Value) -> RawExtension {
    RawExtension(data)
}
