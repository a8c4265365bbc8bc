//! Attaches volumes of CSI drivers to the nodes that pods need them on, and detaches them afterwards.
//!
//! To attach is to create a VolumeAttachment, which the driver's external attacher acts on; the node learns from its
//! status that it is done. A volume is detached once no pod needs it there and the node does not use it any more.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use aws_lc_rs::digest;
use k8s_openapi::{
    api::{
        core::v1::{AttachedVolume, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::{CSIDriver, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::Instant;

use super::claim_names;
use crate::{
    runtime::{Action, Context, EventForm, Informer, Key, Manager, Recorder},
    status::{is_already_exists, is_not_found, message},
    workload::pods,
};

/// Name of the controller.
pub(crate) const NAME: &str = "persistentvolume-attach-detach-controller";
const COMPONENT: &str = "attachdetach-controller";
const CONCURRENCY: usize = 5;
/// Time after which a volume is detached although the node says it uses it, as of kube-controller-manager.
const FORCE_AFTER: Duration = Duration::from_secs(6 * 60);
/// Resync period of volumes that wait for something that is not watched.
const RETRY: Duration = Duration::from_secs(5);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

/// Caches that decisions are made from.
#[derive(Clone)]
struct Caches {
    pods: Arc<Informer<Pod>>,
    nodes: Arc<Informer<Node>>,
    claims: Arc<Informer<PersistentVolumeClaim>>,
    volumes: Arc<Informer<PersistentVolume>>,
    attachments: Arc<Informer<VolumeAttachment>>,
    drivers: Arc<Informer<CSIDriver>>,
    /// Times since which no pod has needed an attachment.
    unneeded: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Caches {
    /// Returns true for an attachment that nobody has needed for so long that it is detached in any case.
    fn is_forced(&self, name: &str) -> bool {
        let mut unneeded = self.unneeded.lock().unwrap_or_else(PoisonError::into_inner);
        unneeded.entry(name.to_owned()).or_insert_with(Instant::now).elapsed() > FORCE_AFTER
    }

    fn is_needed_again(&self, name: &str) {
        self.unneeded.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

async fn run(context: Context) {
    let attachments = context.informers.of::<VolumeAttachment>();
    let drivers = context.informers.of::<CSIDriver>();
    tokio::join!(attachments.synced(), drivers.synced());
    // Most clusters of processes have no driver: nothing else is cached until there is one.
    wait_for_driver(&drivers).await;
    let caches = Caches {
        pods: context.informers.of(),
        nodes: context.informers.of(),
        claims: context.informers.of(),
        volumes: context.informers.of(),
        attachments,
        drivers,
        unneeded: Arc::default(),
    };
    tokio::join!(
        caches.pods.synced(),
        caches.nodes.synced(),
        caches.claims.synced(),
        caches.volumes.synced()
    );
    let events = context.recorder(COMPONENT, EventForm::Counted);
    let queue = context.work_queue::<String>();
    let (of_pods, of_attachments, of_nodes) = (queue.clone(), queue.clone(), queue.clone());
    let subscriptions = (
        caches.pods.subscribe(move |change| {
            let names = change.both().filter(|pod| claim_names(pod).next().is_some());
            names.filter_map(|pod| pods::node_name(pod)).for_each(|node| of_pods.add(node.to_owned()));
        }),
        caches.attachments.subscribe(move |change| {
            change.both().for_each(|attachment| of_attachments.add(attachment.spec.node_name.clone()));
        }),
        caches.nodes.subscribe(move |change| {
            change.both().for_each(|node| of_nodes.add(node.name_any()));
        }),
    );
    queue
        .run(CONCURRENCY, |node| {
            let (client, caches, events) = (context.client.clone(), caches.clone(), events.clone());
            async move { reconcile(client, &caches, &events, &node).await }
        })
        .await;
    drop(subscriptions);
}

async fn wait_for_driver(drivers: &Arc<Informer<CSIDriver>>) {
    let (found, mut any) = tokio::sync::watch::channel(false);
    let _subscription = drivers.subscribe(move |change| {
        if change.new.is_some() {
            found.send_replace(true);
        }
    });
    if drivers.all().is_empty() {
        let _ = any.wait_for(|any| *any).await;
    }
}

/// A volume that a pod needs on a node.
struct Needed {
    pod: Arc<Pod>,
    volume: String,
    driver: String,
    handle: String,
}

/// Returns the volumes that pods need on a node, by the name of their attachment, and false if a claim is not known yet.
fn needed(caches: &Caches, node: &str) -> (BTreeMap<String, Needed>, bool) {
    let mut all = BTreeMap::new();
    let mut is_complete = true;
    for pod in caches.pods.all() {
        if pods::node_name(&pod) != Some(node) || pods::is_terminal(&pod) {
            continue;
        }
        let namespace = pod.namespace().unwrap_or_default();
        for claim in claim_names(&pod) {
            let found = caches.claims.get(&Key::new(namespace.clone(), claim));
            let volume = found.and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
            let Some(volume) = volume.and_then(|name| caches.volumes.get(&Key::new("", name))) else {
                is_complete = false;
                continue;
            };
            let Some(csi) = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) else { continue };
            let driver = caches.drivers.get(&Key::new("", csi.driver.clone()));
            if driver.is_some_and(|driver| driver.spec.attach_required == Some(false)) {
                continue;
            }
            all.entry(attachment_name(&csi.volume_handle, &csi.driver, node)).or_insert_with(|| Needed {
                pod: pod.clone(),
                volume: volume.name_any(),
                driver: csi.driver.clone(),
                handle: csi.volume_handle.clone(),
            });
        }
    }
    (all, is_complete)
}

/// Returns the name of a VolumeAttachment, which every node and attacher computes alike.
fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    let digest = digest::digest(&digest::SHA256, format!("{handle}{driver}{node}").as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{hex}")
}

/// Returns the name of a volume in the status of nodes.
fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

async fn reconcile(
    client: Client,
    caches: &Caches,
    events: &Recorder,
    node: &str,
) -> orlop_client::Result<Action> {
    let (needed, is_complete) = needed(caches, node);
    let own = caches.attachments.all();
    let own: BTreeMap<String, &Arc<VolumeAttachment>> = own
        .iter()
        .filter(|attachment| attachment.spec.node_name == node)
        .map(|attachment| (attachment.name_any(), attachment))
        .collect();
    let mut next = if is_complete { Action::Done } else { Action::After(RETRY) };
    let api = Api::<VolumeAttachment>::all(client.clone());
    for (name, wanted) in needed.iter().filter(|(name, _)| !own.contains_key(*name)) {
        attach(&api, caches, events, node, name, wanted).await?;
    }
    let object = caches.nodes.get(&Key::new("", node));
    let mut reported = Vec::new();
    for (name, attachment) in &own {
        let unique = unique_name_of(caches, attachment);
        let is_attached = attachment.status.as_ref().is_some_and(|status| status.attached);
        if needed.contains_key(name) {
            caches.is_needed_again(name);
            reported.extend(unique.filter(|_| is_attached));
        } else if attachment.metadata.deletion_timestamp.is_some() {
            // Its attacher is at work.
            caches.is_needed_again(name);
        } else if is_in_use(object.as_deref(), unique.as_deref()) && !caches.is_forced(name) {
            reported.extend(unique.filter(|_| is_attached));
            next = Action::After(RETRY);
        } else if unique.is_some() {
            // The node must not count on it any more before it goes.
            match api.delete(name, &DeleteParams::default()).await {
                Err(error) if !is_not_found(&error) => return Err(error),
                _ => {}
            }
        }
    }
    if let Some(object) = object {
        report(client, &object, reported).await?;
    }
    Ok(next)
}

async fn attach(
    api: &Api<VolumeAttachment>,
    caches: &Caches,
    events: &Recorder,
    node: &str,
    name: &str,
    wanted: &Needed,
) -> orlop_client::Result<()> {
    let attachment = VolumeAttachment {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: VolumeAttachmentSpec {
            attacher: wanted.driver.clone(),
            node_name: node.to_owned(),
            source: VolumeAttachmentSource {
                persistent_volume_name: Some(wanted.volume.clone()),
                ..VolumeAttachmentSource::default()
            },
        },
        status: None,
    };
    match api.create(&PostParams::default(), &attachment).await {
        Ok(created) => caches.attachments.wrote(created),
        Err(error) if is_already_exists(&error) => {}
        Err(error) => {
            let text =
                format!("AttachVolume.Attach failed for volume {:?} : {}", wanted.volume, message(&error));
            tracing::debug!(handle = wanted.handle, "cannot attach a volume");
            events.warning(&*wanted.pod, "FailedAttachVolume", text);
            return Err(error);
        }
    }
    Ok(())
}

/// Returns the name of an attachment's volume in the status of nodes. Attachments that others made have none.
fn unique_name_of(caches: &Caches, attachment: &VolumeAttachment) -> Option<String> {
    let volume = attachment.spec.source.persistent_volume_name.clone()?;
    let volume = caches.volumes.get(&Key::new("", volume))?;
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    let name = attachment_name(&csi.volume_handle, &csi.driver, &attachment.spec.node_name);
    (name == attachment.name_any()).then(|| unique_name(&csi.driver, &csi.volume_handle))
}

fn is_in_use(node: Option<&Node>, unique: Option<&str>) -> bool {
    let Some((node, unique)) = node.zip(unique) else { return false };
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    if taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE) {
        return false;
    }
    let in_use = node.status.iter().flat_map(|status| status.volumes_in_use.iter().flatten());
    in_use.into_iter().any(|name| name == unique)
}

/// Writes the attached volumes of a node to its status.
async fn report(client: Client, node: &Node, names: Vec<String>) -> orlop_client::Result<()> {
    let attached: Vec<AttachedVolume> =
        names.into_iter().map(|name| AttachedVolume { name, device_path: String::new() }).collect();
    let known = node.status.as_ref().and_then(|status| status.volumes_attached.clone()).unwrap_or_default();
    if known == attached {
        return Ok(());
    }
    let patch = Patch::Merge(json!({"status": {"volumesAttached": attached}}));
    match Api::<Node>::all(client).patch_status(&node.name_any(), &PatchParams::default(), &patch).await {
        Err(error) if !is_not_found(&error) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_csi_attachers_expect() {
        let name = attachment_name("handle", "driver", "node");
        assert_eq!(name.len(), "csi-".len() + 64);
        assert_eq!(name, "csi-fdef298eb16db6fa42906ef1ff09a93a7f3028f8290cc9d71628ff91c237bfa7");
        assert_eq!(unique_name("driver", "handle"), "kubernetes.io/csi/driver^handle");
    }
}
