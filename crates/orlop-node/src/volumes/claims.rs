//! Volumes of claims: the directory behind a bound PersistentVolume.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use orlop_client::{Api, Client, ResourceExt};

/// Returns the directory of a claim of a pod. That of an ephemeral volume must have been made for this pod.
pub(super) async fn path(
    client: &Client,
    pod: &Pod,
    name: &str,
    is_ephemeral: bool,
) -> Result<PathBuf, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let claim = claims.get_opt(name).await.map_err(super::text)?;
    let claim = claim.ok_or_else(|| format!("persistentvolumeclaim {name:?} not found"))?;
    let mut owners = claim.owner_references().iter();
    let is_owner =
        owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref());
    if is_ephemeral && !is_owner {
        let pod = pod.name_any();
        return Err(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
        ));
    }
    let phase = claim.status.and_then(|status| status.phase).unwrap_or_default();
    let volume = claim.spec.and_then(|spec| spec.volume_name).filter(|name| !name.is_empty());
    let Some(volume) = volume.filter(|_| phase == "Bound") else {
        return Err(format!("PVC {namespace}/{name} is not bound"));
    };
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let found = volumes.get_opt(&volume).await.map_err(super::text)?;
    let spec =
        found.and_then(|found| found.spec).ok_or_else(|| format!("persistentvolume {volume:?} not found"))?;
    let path = spec.host_path.map(|source| source.path).or_else(|| spec.local.map(|source| source.path));
    path.map(PathBuf::from).ok_or_else(|| {
        format!("persistentvolume {volume:?}: only hostPath and local volumes are supported by this node")
    })
}
