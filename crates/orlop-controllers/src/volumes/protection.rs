//! Finalizers that keep claims, volumes and classes of attributes while they are in use.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod},
    storage::v1::VolumeAttributesClass,
};
use orlop_client::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};

use super::{
    claim_names,
    matching::{claim_phase, volume_phase},
};
use crate::{
    runtime::{Action, Context, Informer, Key, Manager},
    status::is_not_found,
    workload::{pods, time::now},
};

/// Name of the controller of claims.
pub(crate) const CLAIMS: &str = "persistentvolumeclaim-protection-controller";
/// Name of the controller of volumes.
pub(crate) const VOLUMES: &str = "persistentvolume-protection-controller";
/// Name of the controller of VolumeAttributesClasses.
pub(crate) const CLASSES: &str = "volumeattributesclass-protection-controller";
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";
/// Condition of a bound claim that no pod refers to.
const UNUSED: &str = "Unused";
const CONCURRENCY: usize = 2;

/// Registers one of the controllers.
pub(crate) fn register(manager: &mut Manager, name: &'static str) {
    match name {
        CLAIMS => manager.register(name, run_claims),
        CLASSES => manager.register(name, run_classes),
        _ => manager.register(name, run_volumes),
    }
}

async fn run_claims(context: Context) {
    let claims = context.informers.of::<PersistentVolumeClaim>();
    let pods = context.informers.of::<Pod>();
    tokio::join!(claims.synced(), pods.synced());
    let shared = Claims { claims: claims.clone(), pods: pods.clone() };
    let queue = context.work_queue::<Key>();
    let (of_claims, of_pods) = (queue.clone(), queue.clone());
    let subscriptions = (
        claims.subscribe(move |change| {
            change.new.iter().for_each(|claim| of_claims.add(Key::of(&**claim)));
        }),
        pods.subscribe(move |change| {
            let use_of = |pod: &Arc<Pod>| (pod.metadata.uid.clone(), Use::of(pod));
            if change.old.as_ref().map(use_of) == change.new.as_ref().map(use_of) {
                return;
            }
            for pod in change.both() {
                let namespace = pod.namespace().unwrap_or_default();
                claim_names(pod).for_each(|name| of_pods.add(Key::new(namespace.clone(), name)));
            }
        }),
    );
    queue
        .run(CONCURRENCY, |key| {
            let (client, shared) = (context.client.clone(), shared.clone());
            async move { shared.sync(client, &key).await }
        })
        .await;
    drop(subscriptions);
}

/// Use that a pod makes of its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Use {
    /// It has a node, whose kubelet may have mounted them.
    is_scheduled: bool,
    is_terminal: bool,
    /// Its kubelet is done with it.
    is_shut_down: bool,
}

impl Use {
    fn of(pod: &Pod) -> Self {
        Self {
            is_scheduled: pods::node_name(pod).is_some(),
            is_terminal: pods::is_terminal(pod),
            is_shut_down: pods::is_deleting(pod) && pod.metadata.deletion_grace_period_seconds == Some(0),
        }
    }
}

/// Returns whether a pod keeps a claim from being deleted. One that has ended does too, until it is deleted itself; but for
/// its ephemeral volumes, whose claims go with it.
fn protects(pod: &Pod, claim: &str) -> bool {
    let used = Use::of(pod);
    let mut named = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let is_named = named.any(|volume| {
        volume.persistent_volume_claim.as_ref().is_some_and(|source| source.claim_name == claim)
    });
    used.is_scheduled && (is_named || (!used.is_shut_down && claim_names(pod).any(|name| name == claim)))
}

/// Returns whether a pod that has not ended refers to a claim.
fn refers_to(pod: &Pod, claim: &str) -> bool {
    !Use::of(pod).is_terminal && claim_names(pod).any(|name| name == claim)
}

/// Informers of the controller of claims.
#[derive(Clone, Debug)]
struct Claims {
    claims: Arc<Informer<PersistentVolumeClaim>>,
    pods: Arc<Informer<Pod>>,
}

impl Claims {
    /// Returns whether a pod satisfies `uses`. The cache may lag: only the API can say that there is none.
    async fn any_pod(
        &self,
        client: &orlop_client::Client,
        namespace: &str,
        uses: impl Fn(&Pod) -> bool,
    ) -> orlop_client::Result<bool> {
        if self.pods.in_namespace(namespace).iter().any(|pod| uses(pod)) {
            return Ok(true);
        }
        let live: Api<Pod> = Api::namespaced(client.clone(), namespace);
        Ok(live.list(&ListParams::default()).await?.items.iter().any(uses))
    }

    /// Brings the condition `Unused` of a bound claim up to date. Returns the claim as it is then.
    async fn sync_unused(
        &self,
        client: &orlop_client::Client,
        claim: Arc<PersistentVolumeClaim>,
    ) -> orlop_client::Result<Arc<PersistentVolumeClaim>> {
        if claim.metadata.deletion_timestamp.is_some() || claim_phase(&claim) != "Bound" {
            return Ok(claim);
        }
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let known =
            conditions.into_iter().find(|known| known.type_ == UNUSED).map(|known| known.status == "True");
        let is_used = match known {
            // The usual case needs no list.
            Some(true) => self.pods.in_namespace(&namespace).iter().any(|pod| refers_to(pod, &name)),
            _ => self.any_pod(client, &namespace, |pod| refers_to(pod, &name)).await?,
        };
        if known == Some(!is_used) {
            return Ok(claim);
        }
        let (status, reason, message) = match is_used {
            true => ("False", "PodUsingPVC", "A pod is currently referencing this PVC"),
            false => ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC"),
        };
        let condition = PersistentVolumeClaimCondition {
            type_: UNUSED.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(now()),
            ..PersistentVolumeClaimCondition::default()
        };
        let mut changed = PersistentVolumeClaim::clone(&claim);
        let conditions = changed.status.get_or_insert_default().conditions.get_or_insert_default();
        conditions.retain(|known| known.type_ != UNUSED);
        conditions.push(condition);
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
        let written = api.replace_status(&name, &PostParams::default(), &changed).await?;
        self.claims.wrote(written.clone());
        Ok(Arc::new(written))
    }

    async fn sync(&self, client: orlop_client::Client, key: &Key) -> orlop_client::Result<Action> {
        let Some(claim) = self.claims.get(key) else { return Ok(Action::Done) };
        let claim = match self.sync_unused(&client, claim).await {
            Err(error) if is_not_found(&error) => return Ok(Action::Done),
            claim => claim?,
        };
        let is_protected = claim.finalizers().iter().any(|finalizer| finalizer == CLAIM_FINALIZER);
        let mut changed = PersistentVolumeClaim::clone(&claim);
        match (claim.metadata.deletion_timestamp.is_some(), is_protected) {
            (false, false) => changed.finalizers_mut().push(CLAIM_FINALIZER.to_owned()),
            (true, true) => {
                if self.any_pod(&client, &key.namespace, |pod| protects(pod, &key.name)).await? {
                    return Ok(Action::Done);
                }
                changed.finalizers_mut().retain(|finalizer| finalizer != CLAIM_FINALIZER);
            }
            _ => return Ok(Action::Done),
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client, &key.namespace);
        match api.replace(&key.name, &PostParams::default(), &changed).await {
            Err(error) if is_not_found(&error) => Ok(Action::Done),
            Err(error) => Err(error),
            Ok(written) => {
                match written.metadata.deletion_timestamp.is_some() && written.finalizers().is_empty() {
                    true => self.claims.deleted(&claim),
                    false => self.claims.wrote(written),
                }
                Ok(Action::Done)
            }
        }
    }
}

async fn run_volumes(context: Context) {
    let volumes = context.informers.of::<PersistentVolume>();
    volumes.synced().await;
    let queue = context.work_queue::<Key>();
    let of_volumes = queue.clone();
    let subscription = volumes.subscribe(move |change| {
        change.new.iter().for_each(|volume| of_volumes.add(Key::of(&**volume)));
    });
    queue
        .run(CONCURRENCY, |key| {
            let (client, volumes) = (context.client.clone(), volumes.clone());
            async move { sync_volume(client, &volumes, &key).await }
        })
        .await;
    drop(subscription);
}

async fn sync_volume(
    client: orlop_client::Client,
    volumes: &Arc<Informer<PersistentVolume>>,
    key: &Key,
) -> orlop_client::Result<Action> {
    let Some(volume) = volumes.get(key) else { return Ok(Action::Done) };
    let is_protected = volume.finalizers().iter().any(|finalizer| finalizer == VOLUME_FINALIZER);
    let mut changed = PersistentVolume::clone(&volume);
    match (volume.metadata.deletion_timestamp.is_some(), is_protected) {
        (false, false) => changed.finalizers_mut().push(VOLUME_FINALIZER.to_owned()),
        (true, true) if volume_phase(&volume) != "Bound" => {
            changed.finalizers_mut().retain(|finalizer| finalizer != VOLUME_FINALIZER);
        }
        _ => return Ok(Action::Done),
    }
    let api: Api<PersistentVolume> = Api::all(client);
    match api.replace(&key.name, &PostParams::default(), &changed).await {
        Err(error) if is_not_found(&error) => Ok(Action::Done),
        Err(error) => Err(error),
        Ok(written) => {
            match written.metadata.deletion_timestamp.is_some() && written.finalizers().is_empty() {
                true => volumes.deleted(&volume),
                false => volumes.wrote(written),
            }
            Ok(Action::Done)
        }
    }
}

async fn run_classes(context: Context) {
    let classes = context.informers.of::<VolumeAttributesClass>();
    let claims = context.informers.of::<PersistentVolumeClaim>();
    let volumes = context.informers.of::<PersistentVolume>();
    tokio::join!(classes.synced(), claims.synced(), volumes.synced());
    let queue = context.work_queue::<String>();
    let (of_classes, of_claims, of_volumes) = (queue.clone(), queue.clone(), queue.clone());
    let subscriptions = (
        classes.subscribe(move |change| {
            change.new.iter().for_each(|class| of_classes.add(class.name_any()));
        }),
        // Only one that stops using a class matters.
        claims.subscribe(move |change| {
            change.old.iter().flat_map(|claim| classes_of_claim(claim)).for_each(|name| of_claims.add(name));
        }),
        volumes.subscribe(move |change| {
            change
                .old
                .iter()
                .filter_map(|volume| class_of_volume(volume))
                .for_each(|name| of_volumes.add(name));
        }),
    );
    queue
        .run(CONCURRENCY, |name| {
            let (client, classes) = (context.client.clone(), classes.clone());
            let is_used = claims.all().iter().any(|claim| classes_of_claim(claim).any(|used| used == name))
                || volumes.all().iter().any(|volume| class_of_volume(volume).as_deref() == Some(&name));
            async move { sync_class(client, &classes, &name, is_used).await }
        })
        .await;
    drop(subscriptions);
}

/// Returns the classes that a claim has, wants or is changed to.
fn classes_of_claim(claim: &PersistentVolumeClaim) -> impl Iterator<Item = String> {
    let status = claim.status.as_ref();
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
    let current = status.and_then(|status| status.current_volume_attributes_class_name.clone());
    let target = status
        .and_then(|status| status.modify_volume_status.as_ref())
        .and_then(|change| change.target_volume_attributes_class_name.clone());
    [wanted, current, target].into_iter().flatten().filter(|name| !name.is_empty())
}

fn class_of_volume(volume: &PersistentVolume) -> Option<String> {
    volume.spec.as_ref()?.volume_attributes_class_name.clone().filter(|name| !name.is_empty())
}

async fn sync_class(
    client: orlop_client::Client,
    classes: &Arc<Informer<VolumeAttributesClass>>,
    name: &str,
    is_used: bool,
) -> orlop_client::Result<Action> {
    let Some(class) = classes.get(&Key::new("", name)) else { return Ok(Action::Done) };
    let is_protected = class.finalizers().iter().any(|finalizer| finalizer == CLASS_FINALIZER);
    let mut changed = VolumeAttributesClass::clone(&class);
    match (class.metadata.deletion_timestamp.is_some(), is_protected) {
        (false, false) => changed.finalizers_mut().push(CLASS_FINALIZER.to_owned()),
        (true, true) if !is_used => {
            changed.finalizers_mut().retain(|finalizer| finalizer != CLASS_FINALIZER);
        }
        _ => return Ok(Action::Done),
    }
    match Api::<VolumeAttributesClass>::all(client).replace(name, &PostParams::default(), &changed).await {
        Err(error) if is_not_found(&error) => Ok(Action::Done),
        Err(error) => Err(error),
        Ok(written) => {
            match written.metadata.deletion_timestamp.is_some() && written.finalizers().is_empty() {
                true => classes.deleted(&class),
                false => classes.wrote(written),
            }
            Ok(Action::Done)
        }
    }
}
