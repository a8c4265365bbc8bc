//! Mounts of a container: which directory or file appears where.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use k8s_openapi::api::core::v1::Container;

use super::Sources;
use crate::{
    environment::{ConfigError, Variables},
    expansion,
};

/// A volume, or a part of it, at a path of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeMount {
    pub(crate) volume: String,
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
}

/// Returns the mounts of a container. Creates the directories that a subPath names.
pub(crate) fn of(
    container: &Container,
    sources: &Sources,
    variables: &Variables,
) -> Result<Vec<VolumeMount>, ConfigError> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let Some(source) = sources.get(&mount.name) else {
            return Err(ConfigError(format!("volume {:?} not found", mount.name)));
        };
        let sub_path = match mount.sub_path_expr.as_deref().filter(|expression| !expression.is_empty()) {
            Some(expression) => {
                let is_known = |name: &str| variables.get(name).is_some_and(|value| !value.is_empty());
                if let Some(name) = expansion::unknown(expression, is_known) {
                    let reason = format!("missing value for {name:?}");
                    return Err(ConfigError(format!(
                        "failed to expand subPathExpr of volumeMount {:?}: {reason}",
                        mount.name
                    )));
                }
                expansion::expand(expression, |name| variables.get(name))
            }
            None => mount.sub_path.clone().unwrap_or_default(),
        };
        mounts.push(VolumeMount {
            volume: mount.name.clone(),
            source: sub_folder(source, &sub_path)?,
            target: PathBuf::from(&mount.mount_path),
            read_only: mount.read_only == Some(true),
        });
    }
    Ok(mounts)
}

/// Returns a path below a volume, and creates it. It may not leave the volume, by links neither.
fn sub_folder(source: &Path, sub_path: &str) -> Result<PathBuf, ConfigError> {
    if sub_path.is_empty() {
        return Ok(source.to_owned());
    }
    let path = Path::new(sub_path);
    if path.is_absolute() {
        return Err(ConfigError(format!("error SubPath `{sub_path}` must not be an absolute path")));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(ConfigError(format!("unable to provision SubPath `{sub_path}`: must not contain '..'")));
    }
    let failed = |error: &dyn std::fmt::Display| {
        ConfigError(format!("failed to prepare subPath for volumeMount: {error}"))
    };
    let root = source.canonicalize().map_err(|error| failed(&error))?;
    let wanted = root.join(path);
    if fs::symlink_metadata(&wanted).is_err() {
        // Created step by step: a link on the way must not lead out.
        let mut folder = root.clone();
        for part in path.components() {
            folder.push(part);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(failed(&error));
                }
                _ => {}
            }
            let resolved = folder.canonicalize().map_err(|error| failed(&error))?;
            if !resolved.starts_with(&root) {
                return Err(failed(&format!("{} is not below the volume", folder.display())));
            }
        }
    }
    let resolved = wanted.canonicalize().map_err(|error| failed(&error))?;
    if resolved.starts_with(&root) {
        Ok(resolved)
    } else {
        Err(failed(&format!("{sub_path} is not below the volume")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_path_stays_inside_its_volume() {
        let volume = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", volume.path().join("link")).unwrap();
        let found = |path: &str| sub_folder(volume.path(), path).map_err(|error| error.0);
        assert!(found("a/b").unwrap().is_dir());
        assert_eq!(found("/etc"), Err("error SubPath `/etc` must not be an absolute path".into()));
        assert!(found("../x").unwrap_err().contains("must not contain '..'"));
        assert!(found("link").unwrap_err().contains("not below the volume"));
        assert!(found("link/x").is_err());
    }
}
