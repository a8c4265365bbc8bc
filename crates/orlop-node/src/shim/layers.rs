//! Layers of a container's root file system, and paths in it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, mount};

/// Mounts layers at a path: those in `lower`, the first on top, below the writable `upper`.
pub(super) fn overlay(
    lower: &[&Path],
    upper: &Path,
    work: &Path,
    target: &Path,
    user: bool,
) -> io::Result<()> {
    let lower: Vec<String> = lower.iter().map(|path| escape(path)).collect();
    let mut options =
        format!("lowerdir={},upperdir={},workdir={}", lower.join(":"), upper.display(), work.display());
    if user {
        // A user namespace may not write the trusted attributes that overlayfs keeps its notes in.
        options.push_str(",userxattr");
    }
    let options = std::ffi::CString::new(options)?;
    Ok(mount("overlay", target, "overlay", MountFlags::empty(), Some(options.as_c_str()))?)
}

/// Escapes a path in the list of layers: names of images have colons.
pub(super) fn escape(path: &Path) -> String {
    path.display().to_string().replace('\\', "\\\\").replace(':', "\\:")
}

/// Returns a path of a container below its root. Symbolic links are resolved inside the root.
pub(super) fn resolve(merged: &Path, path: &Path) -> PathBuf {
    const LINKS_MAX: usize = 40;
    let mut resolved = PathBuf::new();
    let mut pending: Vec<std::ffi::OsString> =
        path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    let mut links = 0;
    while let Some(part) = pending.pop() {
        match part.to_str() {
            Some("/" | ".") => continue,
            Some("..") => {
                resolved.pop();
                continue;
            }
            _ => resolved.push(&part),
        }
        if let Ok(link) = fs::read_link(merged.join(&resolved))
            && links < LINKS_MAX
        {
            links += 1;
            resolved.pop();
            if link.is_absolute() {
                resolved.clear();
            }
            pending.extend(link.components().rev().map(|part| part.as_os_str().to_owned()));
        }
    }
    merged.join(resolved)
}

pub(super) fn below(merged: &Path, path: &Path) -> PathBuf {
    merged.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_resolved_inside_the_root() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("var")).unwrap();
        symlink("/run", root.path().join("var/run")).unwrap();
        symlink("../../../etc", root.path().join("out")).unwrap();
        let resolved = |path: &str| resolve(root.path(), Path::new(path));
        assert_eq!(resolved("/var/run/secrets"), root.path().join("run/secrets"));
        assert_eq!(resolved("/out/x"), root.path().join("etc/x"));
        assert_eq!(resolved("/a/../b"), root.path().join("b"));
    }
}
