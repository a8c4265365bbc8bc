//! Writes the files of a volume so that a reader sees all of a change or none.
//!
//! Files are in a directory with a time in its name, `..data` is a link to it that a rename replaces, and the names that
//! containers see are links through `..data`. Kubernetes' volumes are laid out so, and programs that watch them rely
//! on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
};

use k8s_openapi::jiff::Timestamp;

const DATA: &str = "..data";
const STAGED: &str = "..data_tmp";

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) content: Vec<u8>,
    pub(super) mode: u32,
    /// User of the file; the node's own if `None`.
    pub(super) owner: Option<u32>,
}

impl File {
    pub(super) fn new(content: Vec<u8>, mode: u32) -> Self {
        Self { content, mode, owner: None }
    }
}

/// Files of a volume by their relative paths.
pub(super) type Payload = BTreeMap<PathBuf, File>;

/// Replaces the files of a volume. Does nothing if they are the same.
pub(super) fn write(folder: &Path, payload: &Payload) -> io::Result<()> {
    let current = fs::read_link(folder.join(DATA)).ok();
    if let Some(current) = &current
        && is_same(&folder.join(current), payload)
    {
        return Ok(());
    }
    let stamp = Timestamp::now().strftime("..%Y_%m_%d_%H_%M_%S.%9f").to_string();
    let target = folder.join(&stamp);
    fs::create_dir(&target)?;
    fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
    for (path, file) in payload {
        let path = target.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &file.content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
        if let Some(owner) = file.owner.filter(|_| rustix::process::geteuid().is_root()) {
            chown(&path, Some(owner), None)?;
        }
    }
    let staged = folder.join(STAGED);
    let _ = fs::remove_file(&staged);
    symlink(&stamp, &staged)?;
    fs::rename(&staged, folder.join(DATA))?;
    link_names(folder, payload)?;
    match current {
        Some(old) => fs::remove_dir_all(folder.join(old)),
        None => Ok(()),
    }
}

/// Links the visible names, and removes those of files that are gone.
fn link_names(folder: &Path, payload: &Payload) -> io::Result<()> {
    let names: BTreeSet<PathBuf> = payload
        .keys()
        .filter_map(|path| path.components().next())
        .map(|part| part.as_os_str().into())
        .collect();
    for name in &names {
        let link = folder.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(name), link)?;
        }
    }
    for entry in fs::read_dir(folder)? {
        let name = PathBuf::from(entry?.file_name());
        let is_own = name.to_string_lossy().starts_with("..");
        if !is_own && !names.contains(&name) {
            fs::remove_file(folder.join(name))?;
        }
    }
    Ok(())
}

fn is_same(folder: &Path, payload: &Payload) -> bool {
    let mut found = 0;
    for (path, file) in payload {
        let path = folder.join(path);
        let same = fs::read(&path).is_ok_and(|content| content == file.content);
        if !same {
            return false;
        }
        found += 1;
    }
    found == count(folder)
}

fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |content: &str| File::new(content.into(), 0o644);
        files.iter().map(|(path, content)| ((*path).into(), file(content))).collect()
    }

    #[test]
    fn change_replaces_all_files_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).ok();
        write(folder.path(), &payload(&[("a", "1"), ("sub/b", "2")])).unwrap();
        assert_eq!((read("a"), read("sub/b")), (Some("1".into()), Some("2".into())));
        let first = fs::read_link(folder.path().join(DATA)).unwrap();
        write(folder.path(), &payload(&[("a", "1"), ("sub/b", "2")])).unwrap();
        assert_eq!(fs::read_link(folder.path().join(DATA)).unwrap(), first);
        write(folder.path(), &payload(&[("a", "3")])).unwrap();
        assert_eq!((read("a"), read("sub/b")), (Some("3".into()), None));
        assert!(!folder.path().join(first).exists());
    }
}
