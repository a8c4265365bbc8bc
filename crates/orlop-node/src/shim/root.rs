//! The root file system of a container: that of the machine below a writable layer of its own, with volumes at their
//! paths, its own /proc and a small /dev.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};

use super::{
    config::Namespaces,
    folders,
    layers::{below, escape, overlay, resolve},
};

/// Devices that a container has.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];
const NO_DATA: Option<&std::ffi::CStr> = None;

/// Enters the root file system of a container. The mount namespace must be the process's own.
pub(super) fn enter(namespaces: &Namespaces) -> io::Result<()> {
    // Mounts of the machine appear here, and none from here there.
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let [upper, work, merged] = ["upper", "work", "root"].map(|name| namespaces.layer.join(name));
    for folder in [&upper, &work, &merged] {
        fs::create_dir_all(folder)?;
    }
    let own = machine_mounts(&namespaces.layer)?;
    let image = namespaces.image.as_deref().map(|image| mount_image(image, &namespaces.layer)).transpose()?;
    let folders = if namespaces.user {
        let volumes = namespaces.mounts.iter().map(|volume| volume.target.as_path());
        folders::build(image.as_deref(), &namespaces.layer, &merged, volumes)?
    } else {
        let lower: Vec<&Path> = image.as_deref().into_iter().chain([Path::new("/")]).collect();
        overlay(&lower, &upper, &work, &merged, false)?;
        for point in own {
            let target = below(&merged, &point);
            // A mount over something that is not there now.
            if target.exists() {
                let _ = mount_bind_recursive(&point, &target);
            }
        }
        Vec::new()
    };
    mount_proc(&merged)?;
    if namespaces.all_devices {
        mount_bind_recursive("/dev", merged.join("dev"))?;
    } else {
        mount_devices(&merged)?;
    }
    for volume in &namespaces.mounts {
        let target = resolve(&merged, &volume.target);
        create_mount_point(&volume.source, &target)
            .map_err(|error| context(&error, "cannot create", &volume.target))?;
        mount_bind_recursive(&volume.source, &target)
            .map_err(|error| context(&error.into(), "cannot mount", &volume.target))?;
        if volume.read_only {
            remount_read_only(&target)?;
        }
    }
    if namespaces.read_only_root {
        for folder in &folders {
            remount_read_only(folder)?;
        }
        mount_remount(&merged, MountFlags::RDONLY | MountFlags::BIND, c"")?;
    }
    rustix::process::chdir(&merged)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// Mounts the files of an image as a layer. A folder of the machine's root cannot be one beside that root itself, whose
/// part it is; an overlay of the folder can.
fn mount_image(image: &Path, layer: &Path) -> io::Result<PathBuf> {
    let [empty, target] = ["empty", "image"].map(|name| layer.join(name));
    for folder in [&empty, &target] {
        fs::create_dir_all(folder)?;
    }
    let options = std::ffi::CString::new(format!("lowerdir={}:{}", escape(image), escape(&empty)))?;
    mount("overlay", &target, "overlay", MountFlags::RDONLY, Some(options.as_c_str()))
        .map_err(|error| context(&error.into(), "cannot mount the image", image))?;
    Ok(target)
}

/// Returns the topmost mount points of the machine's file systems that an overlay of the root does not show.
fn machine_mounts(own: &Path) -> io::Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mut points: Vec<PathBuf> = Vec::new();
    for line in table.lines() {
        let Some(point) = line.split(' ').nth(4) else { continue };
        let point = PathBuf::from(point.replace("\\040", " "));
        let is_special = point == Path::new("/") || point.starts_with("/proc") || point.starts_with("/dev");
        let is_nested = points.iter().any(|known| point.starts_with(known));
        // The mount that holds the layer itself would show containers to each other.
        if !is_special && !is_nested && !own.starts_with(&point) {
            points.push(point);
        }
    }
    Ok(points)
}

fn mount_proc(merged: &Path) -> io::Result<()> {
    let target = merged.join("proc");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match mount("proc", &target, "proc", flags, NO_DATA) {
        Ok(()) => Ok(()),
        // Where parts of the machine's own are hidden, as in a container, a new one is refused.
        Err(_) => Ok(mount_bind_recursive("/proc", &target)?),
    }
}

fn mount_devices(merged: &Path) -> io::Result<()> {
    let folder = merged.join("dev");
    mount("tmpfs", &folder, "tmpfs", MountFlags::NOSUID, Some(c"mode=755,size=64k"))?;
    for name in DEVICES {
        let target = folder.join(name);
        fs::write(&target, "")?;
        mount_bind(Path::new("/dev").join(name), &target)?;
    }
    fs::create_dir(folder.join("pts"))?;
    mount_bind_recursive("/dev/pts", folder.join("pts"))?;
    symlink("pts/ptmx", folder.join("ptmx"))?;
    let shared_memory = folder.join("shm");
    fs::DirBuilder::new().mode(0o1777).create(&shared_memory)?;
    mount("tmpfs", &shared_memory, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=1777"))?;
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(target, folder.join(name))?;
    }
    Ok(())
}

fn create_mount_point(source: &Path, target: &Path) -> io::Result<()> {
    if source.is_dir() {
        return fs::create_dir_all(target);
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    if !target.exists() {
        fs::write(target, "")?;
    }
    Ok(())
}

fn remount_read_only(target: &Path) -> io::Result<()> {
    let locked = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    // A user namespace must keep the flags of the mount that it binds.
    mount_remount(target, flags, c"").or_else(|_| mount_remount(target, flags | locked, c""))?;
    Ok(())
}

fn context(error: &io::Error, action: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{action} {}: {error}", path.display()))
}
