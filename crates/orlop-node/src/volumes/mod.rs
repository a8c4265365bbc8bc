//! Volumes of pods: directories of the node.

mod atomic_writer;
mod certificates;
mod claims;
mod host_path;
pub(crate) mod mounts;
mod payload;
mod tokens;
mod trust_bundles;

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Pod, Volume};
use orlop_client::Client;

use crate::{downward::Place, images::Images, runtime::memory};
pub(crate) use certificates::Certificates;
pub(crate) use tokens::Tokens;

/// Mode of an emptyDir, as a kubelet creates it.
const EMPTY_DIR_MODE: u32 = 0o777;
const SET_GROUP_ID: u32 = 0o2000;

/// A volume cannot be set up: the pod's containers wait.
#[derive(Debug, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {reason}")]
pub(crate) struct VolumeError {
    pub(crate) volume: String,
    pub(crate) reason: String,
}

/// Directories or files of a pod's volumes, by name.
pub(crate) type Sources = BTreeMap<String, PathBuf>;

/// Sets up the volumes of a pod below a folder.
pub(crate) struct Volumes<'a> {
    pub(crate) client: &'a Client,
    pub(crate) pod: &'a Pod,
    pub(crate) place: &'a Place,
    pub(crate) folder: &'a Path,
    pub(crate) tokens: &'a Arc<Tokens>,
    pub(crate) certificates: &'a Arc<Certificates>,
    pub(crate) images: &'a Images,
}

impl Volumes<'_> {
    /// Sets up every volume, or writes the changes of its source. Both are the same.
    pub(crate) async fn set_up(&self) -> Result<Sources, VolumeError> {
        let mut sources = Sources::new();
        for volume in self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let source = self.source(volume).await;
            let source = source.map_err(|reason| VolumeError { volume: volume.name.clone(), reason })?;
            sources.insert(volume.name.clone(), source);
        }
        Ok(sources)
    }

    /// Returns true if a volume of the pod has content that may change.
    pub(crate) fn may_change(pod: &Pod) -> bool {
        let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        volumes.any(|volume| {
            volume.config_map.is_some()
                || volume.secret.is_some()
                || volume.projected.is_some()
                || volume.downward_api.is_some()
        })
    }

    async fn source(&self, volume: &Volume) -> Result<PathBuf, String> {
        if let Some(host_path) = &volume.host_path {
            return host_path::check(&host_path.path, host_path.type_.as_deref().unwrap_or_default());
        }
        if let Some(claim) = &volume.persistent_volume_claim {
            return self.claim(&claim.claim_name, false).await;
        }
        if volume.ephemeral.is_some() {
            let pod = self.pod.metadata.name.as_deref().unwrap_or_default();
            return self.claim(&format!("{pod}-{}", volume.name), true).await;
        }
        if let Some(image) = &volume.image {
            return self.image(image.reference.as_deref().unwrap_or_default());
        }
        let folder = self.parent(volume)?.join(&volume.name);
        let created = !folder.exists();
        fs::create_dir_all(&folder).map_err(text)?;
        if volume.empty_dir.is_some() {
            if created {
                fs::set_permissions(&folder, fs::Permissions::from_mode(EMPTY_DIR_MODE)).map_err(text)?;
                self.own_by_group(&folder).map_err(text)?;
            }
            return Ok(folder);
        }
        let payload = self.payload(volume).await?;
        atomic_writer::write(&folder, &payload).map_err(text)?;
        self.own_by_group(&folder).map_err(text)?;
        Ok(folder)
    }

    /// Returns the folder for a volume that the node makes: in memory, if it asks for that.
    fn parent(&self, volume: &Volume) -> Result<PathBuf, String> {
        let medium = volume.empty_dir.as_ref().and_then(|empty_dir| empty_dir.medium.as_deref());
        match medium {
            Some("Memory") => {
                memory::create(self.pod.metadata.uid.as_deref().unwrap_or_default()).map_err(text)
            }
            _ => Ok(self.folder.to_owned()),
        }
    }

    /// Returns the files of an image.
    fn image(&self, name: &str) -> Result<PathBuf, String> {
        let image = self.images.find(name).map_err(text)?;
        image
            .root
            .ok_or_else(|| format!("image {name:?} has no files: only folders of images with a root have"))
    }

    async fn claim(&self, name: &str, is_ephemeral: bool) -> Result<PathBuf, String> {
        let path = claims::path(self.client, self.pod, name, is_ephemeral).await?;
        if !path.exists() {
            fs::create_dir_all(&path).map_err(text)?;
            self.own_by_group(&path).map_err(text)?;
        }
        Ok(path)
    }

    /// Gives a volume to the pod's `fsGroup`, where the node may.
    fn own_by_group(&self, folder: &Path) -> io::Result<()> {
        let context = self.pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        let group = context.and_then(|context| context.fs_group).and_then(|group| u32::try_from(group).ok());
        let Some(group) = group.filter(|_| rustix::process::geteuid().is_root()) else { return Ok(()) };
        own_tree(folder, group)
    }
}

fn own_tree(path: &Path, group: u32) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Ok(());
    }
    chown(path, None, Some(group))?;
    let mode = found.permissions().mode();
    // The group may do what the owner may.
    let mut wanted = mode | ((mode & 0o600) >> 3);
    if found.is_dir() {
        wanted |= SET_GROUP_ID | 0o070;
        for entry in fs::read_dir(path)? {
            own_tree(&entry?.path(), group)?;
        }
    }
    fs::set_permissions(path, fs::Permissions::from_mode(wanted))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
