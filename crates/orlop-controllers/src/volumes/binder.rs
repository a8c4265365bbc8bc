//! Binds claims to volumes, and follows both until they part.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use orlop_client::{Api, Client, Resource, ResourceExt, api::PostParams};

use super::{
    BOUND_BY_CONTROLLER, DEFAULT_CLASS, PROVISIONED_BY, SELECTED_NODE, claim_names,
    matching::{self, claim_class, claim_phase, is_for, volume_name, volume_phase},
};
use crate::{
    runtime::{Action, Context, EventForm, Informer, Key, Manager, Recorder},
    status::is_not_found,
    workload::pods,
};

/// Name of the controller.
pub(crate) const NAME: &str = "persistentvolume-binder-controller";
/// Source of its events.
const COMPONENT: &str = "persistentvolume-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Annotation of the CSI driver that has taken over a volume.
const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const CONCURRENCY: usize = 5;
/// Resync period of unbound claims.
const RESYNC: Duration = Duration::from_secs(15);

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

/// A claim or a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Item {
    Claim(Key),
    Volume(String),
}

struct Controller {
    client: Client,
    claims: Arc<Informer<PersistentVolumeClaim>>,
    volumes: Arc<Informer<PersistentVolume>>,
    classes: Arc<Informer<StorageClass>>,
    pods: Arc<Informer<Pod>>,
    recorder: Arc<Recorder>,
}

async fn run(context: Context) {
    let informers = &context.informers;
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        claims: informers.of(),
        volumes: informers.of(),
        classes: informers.of(),
        pods: informers.of(),
        recorder: context.recorder(COMPONENT, EventForm::Counted),
    });
    let Controller { claims, volumes, classes, pods, .. } = &*controller;
    tokio::join!(claims.synced(), volumes.synced(), classes.synced(), pods.synced());
    let queue = context.work_queue::<Item>();
    let subscriptions = (
        {
            let queue = queue.clone();
            claims.subscribe(move |change| {
                for claim in change.both() {
                    queue.add(Item::Claim(Key::of(&**claim)));
                    volume_name(claim).into_iter().for_each(|name| queue.add(Item::Volume(name.to_owned())));
                }
            })
        },
        {
            let (queue, claims) = (queue.clone(), claims.clone());
            volumes.subscribe(move |change| {
                let Some(volume) = change.latest() else { return };
                queue.add(Item::Volume(volume.name_any()));
                // It may be what an unbound claim waits for, or the volume of a bound one.
                for claim in claims.all() {
                    let is_its = volume_name(&claim) == volume.metadata.name.as_deref();
                    if is_its || is_for(volume, &claim) || claim_phase(&claim) != "Bound" {
                        queue.add(Item::Claim(Key::of(&*claim)));
                    }
                }
            })
        },
    );
    queue
        .run(CONCURRENCY, |item| {
            let controller = controller.clone();
            async move {
                match item {
                    Item::Claim(key) => controller.sync_claim(&key).await,
                    Item::Volume(name) => controller.sync_volume(&name).await,
                }
            }
        })
        .await;
    drop(subscriptions);
}

impl Controller {
    async fn sync_claim(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(claim) = self.claims.get(key) else { return Ok(Action::Done) };
        let is_complete = claim.annotations().contains_key(BIND_COMPLETED);
        if is_complete { self.sync_bound_claim(&claim).await } else { self.sync_unbound_claim(&claim).await }
    }

    async fn sync_unbound_claim(&self, claim: &PersistentVolumeClaim) -> orlop_client::Result<Action> {
        if claim.metadata.deletion_timestamp.is_some() {
            return Ok(Action::Done);
        }
        let Some(name) = volume_name(claim) else {
            let class = self.classes.get(&Key::new("", claim_class(claim)));
            let mode = class.as_ref().and_then(|class| class.volume_binding_mode.as_deref());
            let is_waiting =
                mode == Some("WaitForFirstConsumer") && !claim.annotations().contains_key(SELECTED_NODE);
            let volumes = self.volumes.all();
            if let Some(volume) = matching::find(claim, &volumes, None, is_waiting) {
                return self.bind(volume, claim).await;
            }
            return self.wait(claim, class.as_deref(), is_waiting).await;
        };
        let Some(volume) = self.volumes.get(&Key::new("", name)) else {
            return self.set_claim_phase(claim, "Pending").await;
        };
        let is_reserved = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some());
        if is_reserved && !is_for(&volume, claim) {
            let text = format!("volume {name:?} already bound to a different claim.");
            self.recorder.warning(claim, "FailedBinding", text);
            return self.set_claim_phase(claim, "Pending").await;
        }
        if let Some(reason) = matching::mismatch(&volume, claim) {
            let text = format!("Cannot bind to requested volume {name:?}: {reason}");
            self.recorder.warning(claim, "VolumeMismatch", text);
            return self.set_claim_phase(claim, "Pending").await;
        }
        self.bind(&volume, claim).await
    }

    /// Says what a claim waits for.
    async fn wait(
        &self,
        claim: &PersistentVolumeClaim,
        class: Option<&StorageClass>,
        is_waiting: bool,
    ) -> orlop_client::Result<Action> {
        if claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_none())
            && claim_class(claim).is_empty()
            && let Some(default) = self.default_class()
        {
            let mut changed = claim.clone();
            changed.spec.get_or_insert_default().storage_class_name = Some(default);
            self.replace_claim(&changed).await?;
            return Ok(Action::Done);
        }
        match class {
            Some(_) if is_waiting => {
                let user =
                    self.pods.in_namespace(&claim.namespace().unwrap_or_default()).into_iter().find(|pod| {
                        pods::is_active(pod) && claim_names(pod).any(|name| name == claim.name_any())
                    });
                match user {
                    Some(pod) => {
                        let text = format!("waiting for pod {} to be scheduled", pod.name_any());
                        self.recorder.normal(claim, "WaitForPodScheduled", text);
                    }
                    None => {
                        let text = "waiting for first consumer to be created before binding";
                        self.recorder.normal(claim, "WaitForFirstConsumer", text);
                    }
                }
            }
            Some(class) if class.provisioner != NO_PROVISIONER => {
                let provisioner = &class.provisioner;
                if claim.annotations().get(PROVISIONER) != Some(provisioner) {
                    let mut changed = claim.clone();
                    for annotation in [PROVISIONER, BETA_PROVISIONER] {
                        changed.annotations_mut().insert(annotation.to_owned(), provisioner.clone());
                    }
                    self.replace_claim(&changed).await?;
                }
                let text = format!(
                    "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
                );
                self.recorder.normal(claim, "ExternalProvisioning", text);
            }
            Some(_) => {}
            None if claim_class(claim).is_empty() => {
                let text = "no persistent volumes available for this claim and no storage class is set";
                self.recorder.normal(claim, "FailedBinding", text);
            }
            None => {
                let name = claim_class(claim);
                let text = format!("storageclass.storage.k8s.io {name:?} not found");
                self.recorder.warning(claim, "ProvisioningFailed", text);
            }
        }
        self.set_claim_phase(claim, "Pending").await.map(|_| Action::After(RESYNC))
    }

    /// Returns the name of the newest default class.
    fn default_class(&self) -> Option<String> {
        let classes = self.classes.all();
        let defaults = classes
            .iter()
            .filter(|class| class.annotations().get(DEFAULT_CLASS).is_some_and(|value| value == "true"));
        let newest = defaults.max_by_key(|class| {
            (
                class.metadata.creation_timestamp.as_ref().map(|time| time.0),
                std::cmp::Reverse(class.name_any()),
            )
        });
        newest.map(|class| class.name_any())
    }

    async fn sync_bound_claim(&self, claim: &PersistentVolumeClaim) -> orlop_client::Result<Action> {
        let volume = volume_name(claim).and_then(|name| self.volumes.get(&Key::new("", name)));
        let Some(volume) = volume else {
            if claim_phase(claim) != "Lost" {
                let text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                self.recorder.warning(claim, "ClaimLost", text);
            }
            return self.set_claim_phase(claim, "Lost").await;
        };
        let is_free = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none());
        if is_free || is_for(&volume, claim) {
            return self.bind(&volume, claim).await;
        }
        if claim_phase(claim) != "Lost" {
            let text = "Two claims are bound to the same volume, this one is bound incorrectly";
            self.recorder.warning(claim, "ClaimMisbound", text);
        }
        self.set_claim_phase(claim, "Lost").await
    }

    /// Binds in four writes, each of which can be repeated.
    async fn bind(
        &self,
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
    ) -> orlop_client::Result<Action> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let mut volume = volume.clone();
        if reference.is_none_or(|reference| reference.uid != claim.metadata.uid) {
            if reference.is_none() {
                volume.annotations_mut().insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
            }
            let mut reference = claim.object_ref(&());
            reference.resource_version.clone_from(&claim.metadata.resource_version);
            volume.spec.get_or_insert_default().claim_ref = Some(reference);
            volume = volumes.replace(&volume.name_any(), &PostParams::default(), &volume).await?;
            self.volumes.wrote(volume.clone());
        }
        self.set_volume_phase(&volume, "Bound").await?;
        let mut claim = claim.clone();
        if volume_name(&claim).is_none() || !claim.annotations().contains_key(BIND_COMPLETED) {
            if volume_name(&claim).is_none() {
                claim.annotations_mut().insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
            }
            claim.annotations_mut().insert(BIND_COMPLETED.to_owned(), "yes".to_owned());
            claim.spec.get_or_insert_default().volume_name = Some(volume.name_any());
            claim = self.replace_claim(&claim).await?;
        }
        let spec = volume.spec.clone().unwrap_or_default();
        let mut changed = claim.clone();
        let status = changed.status.get_or_insert_default();
        status.phase = Some("Bound".to_owned());
        status.access_modes = spec.access_modes;
        status.capacity = spec.capacity;
        self.write_claim_status(&claim, changed).await
    }

    async fn replace_claim(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> orlop_client::Result<PersistentVolumeClaim> {
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        let written = api.replace(&claim.name_any(), &PostParams::default(), claim).await?;
        self.claims.wrote(written.clone());
        Ok(written)
    }

    async fn set_claim_phase(
        &self,
        claim: &PersistentVolumeClaim,
        phase: &str,
    ) -> orlop_client::Result<Action> {
        let mut changed = claim.clone();
        let status = changed.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        self.write_claim_status(claim, changed).await
    }

    async fn write_claim_status(
        &self,
        old: &PersistentVolumeClaim,
        new: PersistentVolumeClaim,
    ) -> orlop_client::Result<Action> {
        if old.status != new.status {
            let api: Api<PersistentVolumeClaim> =
                Api::namespaced(self.client.clone(), &new.namespace().unwrap_or_default());
            match api.replace_status(&new.name_any(), &PostParams::default(), &new).await {
                Ok(written) => self.claims.wrote(written),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Action::Done)
    }

    async fn sync_volume(&self, name: &str) -> orlop_client::Result<Action> {
        let Some(volume) = self.volumes.get(&Key::new("", name)) else { return Ok(Action::Done) };
        let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else {
            return self.set_volume_phase(&volume, "Available").await;
        };
        if reference.uid.as_deref().unwrap_or_default().is_empty() {
            // Reserved for a claim that has not come.
            return self.set_volume_phase(&volume, "Available").await;
        }
        let key = Key::new(
            reference.namespace.clone().unwrap_or_default(),
            reference.name.clone().unwrap_or_default(),
        );
        let claim = self.claims.get(&key).filter(|claim| claim.metadata.uid == reference.uid);
        match claim {
            Some(claim) if volume_name(&claim) == Some(name) => self.set_volume_phase(&volume, "Bound").await,
            // It is about to be bound.
            Some(_) => Ok(Action::Done),
            None => {
                let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
                let live = api.get_opt(&key.name).await?;
                if live.is_some_and(|live| live.metadata.uid == reference.uid) {
                    return Ok(Action::Requeue);
                }
                self.release(&volume).await
            }
        }
    }

    /// Releases a volume whose claim is gone. It is retained, or deleted by its provisioner; one that is to be deleted and has
    /// no provisioner fails.
    async fn release(&self, volume: &PersistentVolume) -> orlop_client::Result<Action> {
        if volume_phase(volume) == "Failed" {
            return Ok(Action::Done);
        }
        self.set_volume_phase(volume, "Released").await?;
        if !is_for_nobody_to_delete(volume) {
            return Ok(Action::Done);
        }
        let name = volume.name_any();
        let Some(released) = self.volumes.get(&Key::new("", name.clone())) else { return Ok(Action::Done) };
        let text = format!(
            "error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched"
        );
        self.recorder.warning(&*released, "VolumeFailedDelete", text.clone());
        self.write_volume_status(&released, "Failed", Some(text)).await
    }

    async fn set_volume_phase(&self, volume: &PersistentVolume, phase: &str) -> orlop_client::Result<Action> {
        self.write_volume_status(volume, phase, None).await
    }

    async fn write_volume_status(
        &self,
        volume: &PersistentVolume,
        phase: &str,
        message: Option<String>,
    ) -> orlop_client::Result<Action> {
        if volume_phase(volume) == phase || volume.metadata.deletion_timestamp.is_some() {
            return Ok(Action::Done);
        }
        let mut changed = volume.clone();
        let status = changed.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        status.message = message;
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        match api.replace_status(&volume.name_any(), &PostParams::default(), &changed).await {
            Ok(written) => self.volumes.wrote(written),
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(Action::Done)
    }
}

/// Returns whether a volume is to be deleted with its claim, and no provisioner is there to do it.
fn is_for_nobody_to_delete(volume: &PersistentVolume) -> bool {
    let spec = volume.spec.as_ref();
    let is_deleted = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) == Some("Delete");
    let annotations = volume.annotations();
    let is_external = |name: &String| !name.is_empty() && !name.starts_with("kubernetes.io/");
    let has_provisioner = annotations.get(PROVISIONED_BY).is_some_and(is_external)
        || annotations.contains_key(MIGRATED_TO)
        || spec.is_some_and(|spec| spec.csi.is_some());
    is_deleted && !has_provisioner
}
