//! The root file system of a container in a user namespace, folder by folder.
//!
//! There the kernel refuses the machine's root as a layer: what is mounted below it cannot be taken apart from it. So every
//! folder of the root is a layer of its own, and one with mounts below is made anew, entry by entry.
//!
//! Nobody may write to folders of users that the namespace does not have, which are most of the machine's. The folders at the top and
//! those on the way to a volume are therefore in the writable layer from the beginning, as the container's own.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, FileType},
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use rustix::mount::{mount_bind, mount_bind_recursive};

use super::layers::{below, overlay, resolve};

/// Entries of a folder that is made anew; one with more is shown as it is.
const ENTRIES_MAX: usize = 200;
/// Folders at the top that are no files of the machine, and mounted later.
const SPECIAL: &[&str] = &["proc", "dev"];
/// Folder that is shown as it is.
const KERNEL: &str = "/sys";

/// Builds the root file system at `merged`. Returns the layers that are mounted.
pub(super) fn build<'a>(
    image: Option<&Path>,
    layer: &Path,
    merged: &Path,
    volumes: impl Iterator<Item = &'a Path>,
) -> io::Result<Vec<PathBuf>> {
    let points = mount_points()?;
    mount_bind(merged, merged)?;
    for name in SPECIAL {
        fs::create_dir_all(merged.join(name))?;
    }
    let volumes = volumes.map(|volume| resolve(Path::new("/"), volume)).collect();
    let mut builder = Builder { image, layer, merged, points, volumes, made: Vec::new() };
    builder.entries(Path::new("/"))?;
    Ok(builder.made)
}

/// Returns where something is mounted on the machine.
fn mount_points() -> io::Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.map(|point| PathBuf::from(point.replace("\\040", " "))).collect())
}

struct Builder<'a> {
    /// Files of the image, over those of the machine.
    image: Option<&'a Path>,
    layer: &'a Path,
    merged: &'a Path,
    points: Vec<PathBuf>,
    volumes: Vec<PathBuf>,
    /// Layers that are mounted.
    made: Vec<PathBuf>,
}

impl Builder<'_> {
    /// Shows a folder of the machine or of the image.
    fn folder(&mut self, path: &Path) -> io::Result<()> {
        let target = below(self.merged, path);
        fs::create_dir_all(&target)?;
        let has_mounts = self.points.iter().any(|point| point != path && point.starts_with(path));
        let is_whole = path == Path::new(KERNEL);
        if !is_whole && !has_mounts && self.mount_layer(path, &target).is_ok() {
            return Ok(());
        }
        let is_small =
            || fs::read_dir(path).is_ok_and(|entries| entries.take(ENTRIES_MAX + 1).count() <= ENTRIES_MAX);
        if !is_whole && has_mounts && is_small() {
            return self.entries(path);
        }
        // A file system that cannot be a layer, or a folder that this user may not read.
        let _ = mount_bind_recursive(path, &target);
        Ok(())
    }

    /// Shows every entry of a folder.
    fn entries(&mut self, path: &Path) -> io::Result<()> {
        let mut all = entries(path).unwrap_or_default();
        if let Some(image) = self.image {
            all.extend(entries(&below(image, path)).unwrap_or_default());
        }
        for (name, (source, kind)) in all {
            let entry = path.join(&name);
            let target = below(self.merged, &entry);
            if kind.is_dir() {
                if path != Path::new("/") || !SPECIAL.iter().any(|special| name == *special) {
                    self.folder(&entry)?;
                }
            } else if kind.is_symlink() {
                symlink(fs::read_link(&source)?, &target)?;
            } else {
                fs::write(&target, "")?;
                // A file that this user may not see.
                let _ = mount_bind(&source, &target);
            }
        }
        Ok(())
    }

    /// Mounts a folder below a writable layer.
    fn mount_layer(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        let of_image = self.image.map(|image| below(image, path));
        let lower: Vec<&Path> =
            of_image.as_deref().into_iter().chain([path]).filter(|folder| is_folder(folder)).collect();
        let upper = below(&self.layer.join("upper"), path);
        let work = self.layer.join("work").join(self.made.len().to_string());
        fs::create_dir_all(&work)?;
        self.copy_up(&upper, path, path)?;
        for volume in self.volumes.iter().filter(|volume| volume.starts_with(path)) {
            let Some(parent) = volume.parent().filter(|parent| parent.starts_with(path)) else { continue };
            self.copy_up(&upper, path, parent)?;
        }
        overlay(&lower, &upper, &work, target, true)?;
        self.made.push(target.to_owned());
        Ok(())
    }

    /// Copies the folders from `top` to `path` up to the writable layer of `top`, with the permissions that they have.
    fn copy_up(&self, upper: &Path, top: &Path, path: &Path) -> io::Result<()> {
        let mut machine = top.to_owned();
        let mut own = upper.to_owned();
        let rest = path.strip_prefix(top).unwrap_or(Path::new(""));
        for part in std::iter::once(None).chain(rest.components().map(Some)) {
            if let Some(part) = part {
                machine.push(part);
                own.push(part);
            }
            let of_image = self.image.map(|image| below(image, &machine));
            let mut known = of_image.as_deref().into_iter().chain([machine.as_path()]);
            let known = known.find_map(|folder| fs::symlink_metadata(folder).ok());
            if known.as_ref().is_some_and(|known| !known.is_dir()) {
                // Not a folder: whatever is to be mounted there cannot be.
                return Ok(());
            }
            fs::create_dir_all(&own)?;
            if let Some(known) = known {
                fs::set_permissions(&own, known.permissions())?;
            }
        }
        Ok(())
    }
}

/// Returns the entries of a folder, by name, with where they are and what they are.
fn entries(folder: &Path) -> io::Result<BTreeMap<OsString, (PathBuf, FileType)>> {
    fs::read_dir(folder)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name(), (entry.path(), entry.file_type()?)))
        })
        .collect()
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}
