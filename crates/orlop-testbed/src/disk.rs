//! Small disks for tests of what happens when one is full.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::not_run::not_run;

/// Time within which a disk that was closed can be remounted.
const REMOUNT_DEADLINE: Duration = Duration::from_secs(20);

/// A small disk, unmounted on drop: a tmpfs, which only root may mount.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts a disk of a size such as `24m` at a folder that does not exist yet. Any account may write to it. Without
    /// permission to mount, `None` is returned and the running test is listed as not run.
    pub fn mount(folder: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir(folder).expect("the disk's folder");
        let mount = ["-t", "tmpfs", "-o", &format!("size={size},mode=0777"), "none"];
        let mounted = run(Command::new("mount").args(mount).arg(folder));
        if !mounted {
            not_run("only root may mount a small disk");
        }
        mounted.then(|| Self(folder.to_owned()))
    }

    /// Returns the folder that the disk is mounted at.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Changes a mount option, such as `ro` or `size=64m`.
    pub fn remount(&self, option: &str) {
        let deadline = Instant::now() + REMOUNT_DEADLINE;
        let options = format!("remount,{option}");
        // Processes that other tests fork hold the disk's files open until they execute.
        while !run(Command::new("mount").args(["-o", &options]).arg(&self.0)) {
            assert!(Instant::now() < deadline, "cannot remount {} with {option}", self.0.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Fills the disk to the last byte with a file. Returns its path.
    pub fn fill(&self, name: &str) -> PathBuf {
        let filler = self.0.join(name);
        let written = std::fs::write(&filler, vec![0; 64 << 20]);
        assert!(written.is_err(), "{} has more room than that of a small disk", self.0.display());
        filler
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
