//! Volumes that are folders of a node, made on demand.
//!
//! The volume is a hostPath that the node creates when the first pod mounts it. Its node affinity keeps the claim's
//! pods there.

use std::{path::PathBuf, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use orlop_client::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    DEFAULT_CLASS, PROVISIONED_BY, SELECTED_NODE,
    matching::{claim_class, volume_name, volume_phase},
};
use crate::{
    backoff::retry,
    runtime::{Action, Context, EventForm, Informer, Key, Manager, Recorder},
    status::{is_already_exists, is_not_found, message},
    workload::resources::amount,
};

/// Name of the controller.
pub(crate) const NAME: &str = "local-path-provisioner";
/// Name of the provisioner, and of its class.
const PROVISIONER: &str = "orlop.dev/local-path";
const CLASS: &str = "local-path";
const STORAGE: &str = "storage";
const CONCURRENCY: usize = 4;

type Capacity = std::collections::BTreeMap<String, Quantity>;

/// Registers the provisioner. Volumes are folders in `folder` of their node.
pub(crate) fn register(manager: &mut Manager, folder: PathBuf) {
    manager.register(NAME, move |context| run(context, folder.clone()));
}

struct Provisioner {
    client: Client,
    claims: Arc<Informer<PersistentVolumeClaim>>,
    volumes: Arc<Informer<PersistentVolume>>,
    classes: Arc<Informer<StorageClass>>,
    recorder: Arc<Recorder>,
    folder: PathBuf,
}

async fn run(context: Context, folder: PathBuf) {
    let informers = &context.informers;
    let provisioner = Arc::new(Provisioner {
        client: context.client.clone(),
        claims: informers.of(),
        volumes: informers.of(),
        classes: informers.of(),
        recorder: context.recorder(PROVISIONER, EventForm::Counted),
        folder,
    });
    let Provisioner { claims, volumes, classes, .. } = &*provisioner;
    tokio::join!(claims.synced(), volumes.synced(), classes.synced());
    retry("the class of local volumes", || provisioner.create_class()).await;
    let queue = context.work_queue::<Key>();
    let (of_claims, of_volumes) = (queue.clone(), queue.clone());
    let subscriptions = (
        claims.subscribe(move |change| change.new.iter().for_each(|claim| of_claims.add(Key::of(&**claim)))),
        volumes
            .subscribe(move |change| change.new.iter().for_each(|volume| of_volumes.add(Key::of(&**volume)))),
    );
    queue
        .run(CONCURRENCY, |key| {
            let provisioner = provisioner.clone();
            async move {
                match key.namespace.is_empty() {
                    true => provisioner.reclaim(&key).await,
                    false => provisioner.provision(&key).await,
                }
            }
        })
        .await;
    drop(subscriptions);
}

impl Provisioner {
    /// Creates the class, as the default unless there is one.
    async fn create_class(&self) -> orlop_client::Result<()> {
        if self.classes.get(&Key::new("", CLASS)).is_some() {
            return Ok(());
        }
        let has_default =
            self.classes.all().iter().any(|class| class.annotations().contains_key(DEFAULT_CLASS));
        let mut class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": CLASS}, "provisioner": PROVISIONER, "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true});
        if !has_default {
            class["metadata"]["annotations"] = json!({DEFAULT_CLASS: "true"});
        }
        let class: StorageClass = serde_json::from_value(class).map_err(orlop_client::Error::SerdeError)?;
        match Api::<StorageClass>::all(self.client.clone()).create(&PostParams::default(), &class).await {
            Err(error) if !is_already_exists(&error) => Err(error),
            _ => Ok(()),
        }
    }

    async fn provision(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(claim) = self.claims.get(key) else { return Ok(Action::Done) };
        let Some(class) = self.classes.get(&Key::new("", claim_class(&claim))) else {
            return Ok(Action::Done);
        };
        let is_ours = class.provisioner == PROVISIONER && claim.metadata.deletion_timestamp.is_none();
        if let (true, Some(volume)) = (is_ours, volume_name(&claim)) {
            return self.expand(key, &claim, volume).await;
        }
        let node = claim.annotations().get(SELECTED_NODE);
        let (true, None, Some(node)) = (is_ours, volume_name(&claim), node) else { return Ok(Action::Done) };
        let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.clone()).unwrap_or_default();
        let is_block = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block");
        if is_block || modes.iter().any(|mode| mode != "ReadWriteOnce" && mode != "ReadWriteOncePod") {
            let text = format!(
                "failed to provision volume with StorageClass {:?}: only filesystems with ReadWriteOnce are supported",
                class.name_any()
            );
            self.recorder.warning(&*claim, "ProvisioningFailed", text);
            // Back to the scheduler, which may know another node.
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: null}}});
            let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
            let written = api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            self.claims.wrote(written);
            return Ok(Action::Done);
        }
        let name = format!("pvc-{}", claim.uid().unwrap_or_default());
        let path = self.folder.join(format!("{name}_{}_{}", key.namespace, key.name));
        let storage = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.clone());
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
            "spec": {
                "capacity": storage,
                "accessModes": modes,
                "storageClassName": class.name_any(),
                "persistentVolumeReclaimPolicy": class.reclaim_policy,
                "claimRef": claim.object_ref(&()),
                "hostPath": {"path": path, "type": "DirectoryOrCreate"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}},
            },
        });
        let volume: PersistentVolume =
            serde_json::from_value(volume).map_err(orlop_client::Error::SerdeError)?;
        match Api::<PersistentVolume>::all(self.client.clone()).create(&PostParams::default(), &volume).await
        {
            Ok(created) => {
                self.volumes.wrote(created);
                let text = format!("Successfully provisioned volume {name} using {PROVISIONER}");
                self.recorder.normal(&*claim, "ProvisioningSucceeded", text);
                Ok(Action::Done)
            }
            Err(error) if is_already_exists(&error) => Ok(Action::Done),
            Err(error) => {
                let text = format!(
                    "failed to provision volume with StorageClass {:?}: {}",
                    class.name_any(),
                    message(&error)
                );
                self.recorder.warning(&*claim, "ProvisioningFailed", text);
                Err(error)
            }
        }
    }

    /// Gives a bound claim the capacity that it asks for: a folder has all that there is.
    async fn expand(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        volume: &str,
    ) -> orlop_client::Result<Action> {
        let Some(found) = self.volumes.get(&Key::new("", volume)) else { return Ok(Action::Done) };
        let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
        let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
        let Some(wanted) = requests.and_then(|requests| requests.get(STORAGE)).filter(|_| is_bound) else {
            return Ok(Action::Done);
        };
        let bytes = |capacity: Option<&Capacity>| {
            capacity.and_then(|capacity| amount(STORAGE, capacity.get(STORAGE)?)).unwrap_or(0)
        };
        let wanted_bytes = amount(STORAGE, wanted).unwrap_or(0);
        let capacity = json!({"capacity": {STORAGE: wanted}});
        if bytes(found.spec.as_ref().and_then(|spec| spec.capacity.as_ref())) < wanted_bytes {
            let text = format!("External resizer is resizing volume {volume}");
            self.recorder.normal(claim, "Resizing", text);
            let api: Api<PersistentVolume> = Api::all(self.client.clone());
            let patch = Patch::Merge(json!({"spec": capacity}));
            self.volumes.wrote(api.patch(volume, &PatchParams::default(), &patch).await?);
        }
        if bytes(claim.status.as_ref().and_then(|status| status.capacity.as_ref())) < wanted_bytes {
            let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
            let patch = Patch::Merge(json!({"status": capacity}));
            self.claims.wrote(api.patch_status(&key.name, &PatchParams::default(), &patch).await?);
            self.recorder.normal(claim, "VolumeResizeSuccessful", "Resize volume succeeded".to_owned());
        }
        Ok(Action::Done)
    }

    /// Deletes a volume whose claim is gone, and its folder where it is on this machine.
    async fn reclaim(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(volume) = self.volumes.get(key) else { return Ok(Action::Done) };
        let spec = volume.spec.clone().unwrap_or_default();
        let is_ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|name| name == PROVISIONER);
        let is_deleted = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
        if !is_ours || !is_deleted || volume_phase(&volume) != "Released" {
            return Ok(Action::Done);
        }
        let path = spec.host_path.map(|source| PathBuf::from(source.path));
        // Never anything but a folder that this provisioner has named.
        let is_own = |path: &PathBuf| {
            let name = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&key.name));
            path.parent() == Some(self.folder.as_path()) && name
        };
        if let Some(path) = path.filter(is_own)
            && let Err(error) =
                tokio::task::spawn_blocking(move || std::fs::remove_dir_all(path)).await.unwrap_or(Ok(()))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            self.recorder.warning(&*volume, "VolumeFailedDelete", error.to_string());
            return Ok(Action::Requeue);
        }
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        match api.delete(&key.name, &DeleteParams::default()).await {
            Err(error) if !is_not_found(&error) => Err(error),
            _ => Ok(Action::Done),
        }
    }
}
