//! One step of a rollout against the API.

use std::sync::Arc;

use futures_util::future::join_all;
use k8s_openapi::{
    api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec},
    jiff::Timestamp,
};
use orlop_client::{
    ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};

use super::{
    Controller, arithmetic, proportion, revisions,
    rollback::{self, Rollback},
    sets::{self, TEMPLATE_HASH, size},
    status,
    strategy::{progress_deadline, replicas},
};
use crate::{
    runtime::Action,
    status::{is_already_exists, is_namespace_terminating, is_not_found, message},
    workload::{
        hash::template_hash,
        ownership::{controller_reference, is_controlled_by},
        pods,
    },
};

/// Longest name of a ReplicaSet.
const NAME_MAX: usize = 253;

type Sets = Vec<Arc<ReplicaSet>>;

/// A reconciliation in progress.
pub(super) struct Rollout<'a> {
    pub(super) controller: &'a Controller,
    /// The Deployment before this step.
    pub(super) cached: &'a Deployment,
    pub(super) now: Timestamp,
}

impl Rollout<'_> {
    /// One step of a rolling update: the new ReplicaSet grows, or else the old ones shrink.
    pub(super) async fn rolling_update(
        &self,
        mut deployment: Deployment,
        owned: Sets,
    ) -> orlop_client::Result<Action> {
        let (Some(mut new), mut old) = self.sync_new_set(&mut deployment, owned, true).await? else {
            return self.finish(deployment, Vec::new(), None).await;
        };
        let grown = arithmetic::new_size(&deployment, &old, size(&new));
        if grown != size(&new) {
            new = self.scale(&deployment, &new, grown).await?;
            return self.finish(deployment, old, Some(new)).await;
        }
        let shrunk = arithmetic::shrink_old(&deployment, &old, &new);
        if !shrunk.is_empty() {
            for (set, size) in shrunk {
                let scaled = self.scale(&deployment, &set, size).await?;
                replace(&mut old, scaled);
            }
            return self.finish(deployment, old, Some(new)).await;
        }
        self.clean_up_if_complete(&deployment, &old).await?;
        self.finish(deployment, old, Some(new)).await
    }

    /// One step of a recreation: no new pod before the last old one has gone.
    pub(super) async fn recreate(
        &self,
        mut deployment: Deployment,
        owned: Sets,
    ) -> orlop_client::Result<Action> {
        let (mut new, mut old) = self.sync_new_set(&mut deployment, owned, false).await?;
        let active: Vec<_> = old.iter().filter(|set| size(set) > 0).cloned().collect();
        if !active.is_empty() {
            for set in active {
                let scaled = self.scale(&deployment, &set, 0).await?;
                replace(&mut old, scaled);
            }
            return self.finish(deployment, old, new).await;
        }
        let has_pods = |set: &Arc<ReplicaSet>| {
            let pods = self.controller.pods.controlled_by(&set.uid().unwrap_or_default());
            pods.iter().any(|pod| !pods::is_terminal(pod))
        };
        if arithmetic::has_old_pods(&old) || old.iter().any(has_pods) {
            return self.finish(deployment, old, new).await;
        }
        if new.is_none() {
            (new, old) = self.sync_new_set(&mut deployment, old, true).await?;
        }
        if let Some(set) = &new
            && size(set) != replicas(&deployment)
        {
            new = Some(self.scale(&deployment, set, replicas(&deployment)).await?);
        }
        self.clean_up_if_complete(&deployment, &old).await?;
        self.finish(deployment, old, new).await
    }

    /// Follows a change of the replicas, of a paused Deployment too.
    pub(super) async fn scale_only(
        &self,
        mut deployment: Deployment,
        owned: Sets,
    ) -> orlop_client::Result<Action> {
        let (mut new, mut old) = self.sync_new_set(&mut deployment, owned, false).await?;
        for (set, size) in proportion::rescale(&deployment, &old, new.as_ref()) {
            let scaled = self.scale(&deployment, &set, size).await?;
            match &mut new {
                Some(new) if new.uid() == scaled.uid() => *new = scaled,
                _ => replace(&mut old, scaled),
            }
        }
        let is_paused = deployment.spec.paused == Some(true);
        if is_paused && rollback::requested(&deployment).is_none() {
            self.clean_up(&deployment, &old).await?;
        }
        let all = sets::all(&old, new.as_ref());
        status::update(&mut deployment, &all, new.as_deref(), self.now);
        self.controller.write_status(self.cached, deployment).await.map(|()| Action::Done)
    }

    /// Returns to a revision, as the annotation asks.
    pub(super) async fn roll_back(
        &self,
        mut deployment: Deployment,
        owned: Sets,
        revision: i64,
    ) -> orlop_client::Result<Action> {
        let (new, old) = self.sync_new_set(&mut deployment, owned, true).await?;
        let mut changed = self.cached.clone();
        let outcome = rollback::roll_back(&mut changed, &sets::all(&old, new.as_ref()), revision);
        let name = changed.name_any();
        let written = self.controller.api(&changed).replace(&name, &PostParams::default(), &changed).await?;
        self.controller.deployments.wrote(written);
        let recorder = &self.controller.recorder;
        match outcome {
            Rollback::Done(revision) => {
                let text = format!("Rolled back deployment {name:?} to revision {revision}");
                recorder.normal(self.cached, "DeploymentRollback", text);
            }
            Rollback::Refused(reason, text) => recorder.warning(self.cached, reason, text),
        }
        Ok(Action::Done)
    }

    /// Updates the status of a rollout.
    async fn finish(
        &self,
        mut deployment: Deployment,
        old: Sets,
        new: Option<Arc<ReplicaSet>>,
    ) -> orlop_client::Result<Action> {
        let all = sets::all(&old, new.as_ref());
        let next = status::update_rollout(&mut deployment, &all, new.as_deref(), self.now);
        self.controller.write_status(self.cached, deployment).await.map(|()| next)
    }

    /// Returns the ReplicaSet of the current template with its revision up to date, and the others. Creates it if it
    /// is missing and `create` says so. `None` where the namespace is being deleted.
    async fn sync_new_set(
        &self,
        deployment: &mut Deployment,
        owned: Sets,
        create: bool,
    ) -> orlop_client::Result<(Option<Arc<ReplicaSet>>, Sets)> {
        let (new, old) = sets::split(deployment, owned);
        let revision = revisions::newest(&old) + 1;
        let new = match new {
            Some(new) => Some(self.update_new_set(deployment, new, revision).await?),
            None if create => self.create_new_set(deployment, &old, revision).await?,
            None => None,
        };
        if let Some(revision) = new.as_ref().and_then(|new| new.annotations().get(revisions::REVISION)) {
            let annotations = deployment.metadata.annotations.get_or_insert_default();
            annotations.insert(revisions::REVISION.to_owned(), revision.clone());
        }
        Ok((new, old))
    }

    async fn update_new_set(
        &self,
        deployment: &mut Deployment,
        set: Arc<ReplicaSet>,
        revision: i64,
    ) -> orlop_client::Result<Arc<ReplicaSet>> {
        let min_ready = deployment.spec.min_ready_seconds.filter(|seconds| *seconds != 0);
        let mut changed = ReplicaSet::clone(&set);
        let mut is_changed = revisions::annotate(deployment, &mut changed, revision);
        if changed.spec.min_ready_seconds.filter(|seconds| *seconds != 0) != min_ready {
            changed.spec.min_ready_seconds = min_ready;
            is_changed = true;
        }
        let set = if is_changed { self.replace_set(&changed).await? } else { set };
        let has_condition = deployment.status.as_ref().and_then(|status| status.conditions.as_ref());
        let has_condition = has_condition
            .is_some_and(|all| all.iter().any(|known| known.type_.as_deref() == Some("Progressing")));
        if progress_deadline(deployment).is_some() && !has_condition {
            let text = format!("Found new replica set {:?}", set.name_any());
            let condition = status::progressing("True", "FoundNewReplicaSet", text, self.now);
            status::set(deployment.status.get_or_insert_default(), condition);
        }
        Ok(set)
    }

    async fn create_new_set(
        &self,
        deployment: &mut Deployment,
        old: &[Arc<ReplicaSet>],
        revision: i64,
    ) -> orlop_client::Result<Option<Arc<ReplicaSet>>> {
        let wanted = new_set(deployment, old, revision);
        let name = wanted.name_any();
        let api = self.controller.sets_api(deployment);
        match api.create(&PostParams::default(), &wanted).await {
            Ok(created) => {
                self.controller.sets.wrote(created.clone());
                if size(&created) > 0 {
                    let text = format!("Scaled up replica set {name} from 0 to {}", size(&created));
                    self.controller.recorder.normal(self.cached, "ScalingReplicaSet", text);
                }
                if progress_deadline(deployment).is_some() {
                    let text = format!("Created new replica set {name:?}");
                    let condition = status::progressing("True", "NewReplicaSetCreated", text, self.now);
                    status::set(deployment.status.get_or_insert_default(), condition);
                }
                Ok(Some(Arc::new(created)))
            }
            Err(error) if is_already_exists(&error) => {
                let existing = api.get_opt(&name).await?;
                let is_ours = existing.as_ref().is_some_and(|existing| {
                    let template = existing.spec.template.as_ref();
                    is_controlled_by(existing, deployment.uid().unwrap_or_default().as_str())
                        && template.is_some_and(|own| sets::is_same_template(own, &deployment.spec.template))
                });
                if is_ours {
                    return Ok(existing.map(Arc::new));
                }
                // A hash collision: another hash next time.
                let status = deployment.status.get_or_insert_default();
                status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                self.controller.write_status(self.cached, deployment.clone()).await?;
                Err(error)
            }
            Err(error) if is_namespace_terminating(&error) => Ok(None),
            Err(error) => {
                let text = format!("Failed to create new replica set {name:?}: {}", message(&error));
                self.controller.recorder.warning(self.cached, "ReplicaSetCreateError", text.clone());
                if progress_deadline(deployment).is_some() {
                    let condition = status::progressing("False", "ReplicaSetCreateError", text, self.now);
                    status::set(deployment.status.get_or_insert_default(), condition);
                    self.controller.write_status(self.cached, deployment.clone()).await?;
                }
                Err(error)
            }
        }
    }

    /// Gives a ReplicaSet a size, and notes the Deployment's size on it.
    async fn scale(
        &self,
        deployment: &Deployment,
        set: &Arc<ReplicaSet>,
        new_size: i32,
    ) -> orlop_client::Result<Arc<ReplicaSet>> {
        let mut changed = ReplicaSet::clone(set);
        let old_size = size(set);
        changed.spec.replicas = Some(new_size);
        let annotated = revisions::annotate_replicas(deployment, &mut changed);
        if old_size == new_size && !annotated {
            return Ok(set.clone());
        }
        let written = self.replace_set(&changed).await?;
        if old_size != new_size {
            let direction = if old_size < new_size { "up" } else { "down" };
            let name = set.name_any();
            let text = format!("Scaled {direction} replica set {name} from {old_size} to {new_size}");
            self.controller.recorder.normal(self.cached, "ScalingReplicaSet", text);
        }
        Ok(written)
    }

    async fn replace_set(&self, changed: &ReplicaSet) -> orlop_client::Result<Arc<ReplicaSet>> {
        let api = self.controller.sets_api(self.cached);
        let written = api.replace(&changed.name_any(), &PostParams::default(), changed).await?;
        self.controller.sets.wrote(written.clone());
        Ok(Arc::new(written))
    }

    async fn clean_up_if_complete(
        &self,
        deployment: &Deployment,
        old: &[Arc<ReplicaSet>],
    ) -> orlop_client::Result<()> {
        let status = deployment.status.clone().unwrap_or_default();
        if status::is_complete(deployment, &status) {
            self.clean_up(deployment, old).await?;
        }
        Ok(())
    }

    /// Deletes the oldest of the empty ReplicaSets that the history has no place for.
    async fn clean_up(&self, deployment: &Deployment, old: &[Arc<ReplicaSet>]) -> orlop_client::Result<()> {
        let limit = deployment.spec.revision_history_limit;
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else { return Ok(()) };
        let mut alive: Vec<&Arc<ReplicaSet>> =
            old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
        let surplus = alive.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        alive.sort_by_key(|set| revisions::revision(set));
        let is_empty = |set: &&&Arc<ReplicaSet>| {
            let observed = set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
            size(set) == 0 && sets::actual(set) == 0 && set.metadata.generation.unwrap_or(0) <= observed
        };
        let api = self.controller.sets_api(deployment);
        let deleted = alive.iter().take(surplus).filter(is_empty).map(|set| {
            let api = api.clone();
            async move {
                let preconditions = Preconditions { uid: set.uid(), resource_version: None };
                let parameters =
                    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
                match api.delete(&set.name_any(), &parameters).await {
                    Err(error) if is_not_found(&error) => Ok(()),
                    deleted => deleted.map(drop),
                }
            }
        });
        join_all(deleted).await.into_iter().collect()
    }
}

/// Returns the ReplicaSet of the current template, which does not exist yet.
fn new_set(deployment: &Deployment, old: &[Arc<ReplicaSet>], revision: i64) -> ReplicaSet {
    let spec = deployment.spec.clone();
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let mut template = spec.template;
    let hash = template_hash(&template, collisions);
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(TEMPLATE_HASH.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector;
    selector.match_labels.get_or_insert_default().insert(TEMPLATE_HASH.to_owned(), hash.clone());
    let owner = deployment.name_any();
    let prefix: String = owner.chars().take(NAME_MAX - hash.len() - 1).collect();
    let mut set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}-{hash}")),
            labels: Some(labels),
            owner_references: Some(vec![controller_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: ReplicaSetSpec {
            replicas: Some(arithmetic::new_size(deployment, old, 0)),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        },
        status: None,
    };
    revisions::annotate(deployment, &mut set, revision);
    revisions::annotate_replicas(deployment, &mut set);
    set
}

/// Puts a changed ReplicaSet in the place of its former state.
fn replace(sets: &mut [Arc<ReplicaSet>], changed: Arc<ReplicaSet>) {
    if let Some(known) = sets.iter_mut().find(|known| known.uid() == changed.uid()) {
        *known = changed;
    }
}
