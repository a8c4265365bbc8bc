//! Finalizers that keep claims, volumes and classes of attributes while they are in use.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::VolumeAttributesClass,
};
use orlop_client::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};

use super::{claim_names, matching::volume_phase};
use crate::{
    runtime::{Action, Context, Informer, Key, Manager},
    status::is_not_found,
    workload::pods,
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
    let queue = context.work_queue::<Key>();
    let (of_claims, of_pods) = (queue.clone(), queue.clone());
    let subscriptions = (
        claims.subscribe(move |change| {
            change.new.iter().for_each(|claim| of_claims.add(Key::of(&**claim)));
        }),
        pods.subscribe(move |change| {
            // Only a pod that stops using its claims matters.
            let Some(pod) = &change.old else { return };
            if change.new.as_ref().is_none_or(|pod| !uses_claims(pod)) {
                let namespace = pod.namespace().unwrap_or_default();
                claim_names(pod).for_each(|name| of_pods.add(Key::new(namespace.clone(), name)));
            }
        }),
    );
    queue
        .run(CONCURRENCY, |key| {
            let (client, claims, pods) = (context.client.clone(), claims.clone(), pods.clone());
            async move { sync_claim(client, &claims, &pods, &key).await }
        })
        .await;
    drop(subscriptions);
}

/// Returns whether a pod holds its claims: it has a node and runs.
fn uses_claims(pod: &Pod) -> bool {
    pods::node_name(pod).is_some() && !pods::is_terminal(pod)
}

async fn sync_claim(
    client: orlop_client::Client,
    claims: &Arc<Informer<PersistentVolumeClaim>>,
    pods: &Arc<Informer<Pod>>,
    key: &Key,
) -> orlop_client::Result<Action> {
    let Some(claim) = claims.get(key) else { return Ok(Action::Done) };
    let uses = |pod: &Pod| uses_claims(pod) && claim_names(pod).any(|name| name == key.name);
    let is_protected = claim.finalizers().iter().any(|finalizer| finalizer == CLAIM_FINALIZER);
    let mut changed = PersistentVolumeClaim::clone(&claim);
    match (claim.metadata.deletion_timestamp.is_some(), is_protected) {
        (false, false) => changed.finalizers_mut().push(CLAIM_FINALIZER.to_owned()),
        (true, true) => {
            if pods.in_namespace(&key.namespace).iter().any(|pod| uses(pod)) {
                return Ok(Action::Done);
            }
            // The cache may lag: the last word has the API.
            let live: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
            if live.list(&ListParams::default()).await?.items.iter().any(uses) {
                return Ok(Action::Requeue);
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
                true => claims.deleted(&claim),
                false => claims.wrote(written),
            }
            Ok(Action::Done)
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
