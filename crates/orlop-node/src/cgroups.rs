//! Control groups of containers: limits of memory and cpu, where this process may create them.
//!
//! Version 2, delegated or as root, and the memory and cpu hierarchies of version 1. A container's group has its id for a
//! name, below a group of the node's own.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Controllers that limits need.
const CONTROLLERS: [&str; 2] = ["memory", "cpu"];
/// Period of a limit of cpu time, in microseconds.
const PERIOD_US: u64 = 100_000;
/// Shortest slice of a period that the kernel allows, in microseconds.
const QUOTA_US_MIN: u64 = 1000;
const PROCESSES: &str = "cgroup.procs";
const SUBTREE: &str = "cgroup.subtree_control";
/// Attempts to create a group while its parent is removed with the last other one.
const CREATE_ATTEMPTS: u32 = 10;

/// Limits of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) memory_bytes: Option<u64>,
    /// Thousandths of a core.
    pub(crate) cpu_milli: Option<u64>,
    /// Thousandths of a core that the container is to have when others want cpu too.
    pub(crate) cpu_request_milli: Option<u64>,
}

/// The node's own groups, below which those of containers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cgroups {
    /// One hierarchy.
    V2(PathBuf),
    /// A hierarchy each of memory and cpu.
    V1 { memory: PathBuf, cpu: PathBuf },
}

impl Cgroups {
    /// Finds hierarchies in which this process may create groups. `Err` has the reason why there are none.
    pub(crate) fn detect(name: &str) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let found = locate(&mounts, &own, name).ok_or("no hierarchy has memory and cpu controllers")?;
        let probe = found.create(
            "probe",
            Limits { memory_bytes: Some(1 << 30), cpu_milli: Some(1000), cpu_request_milli: None },
        );
        let created = probe.map_err(|error| format!("control groups cannot be created: {error}"))?;
        remove(&created);
        Ok(found)
    }

    /// Returns the directories of a container's group.
    pub(crate) fn of_container(&self, id: &str) -> Vec<PathBuf> {
        match self {
            Self::V2(base) => vec![base.join(id)],
            Self::V1 { memory, cpu } => vec![memory.join(id), cpu.join(id)],
        }
    }

    /// Returns the paths at which programs look for their own group, in the order of [`Self::of_container`].
    pub(crate) fn seen_at(&self) -> &'static [&'static str] {
        match self {
            Self::V2(_) => &["/sys/fs/cgroup"],
            Self::V1 { .. } => &["/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu"],
        }
    }

    /// Creates the group of a container. Returns its directories.
    pub(crate) fn create(&self, id: &str, limits: Limits) -> io::Result<Vec<PathBuf>> {
        let groups = self.of_container(id);
        let created = groups
            .iter()
            .try_for_each(|group| self.create_group(group))
            .and_then(|()| self.limit(&groups, limits));
        if created.is_err() {
            remove(&groups);
        }
        created.map(|()| groups)
    }

    fn create_group(&self, group: &Path) -> io::Result<()> {
        let base = group.parent().ok_or(io::ErrorKind::NotFound)?;
        let mut attempt = 0;
        loop {
            if let Self::V2(_) = self {
                let parent = base.parent().ok_or(io::ErrorKind::NotFound)?;
                delegate(parent)?;
                fs::create_dir_all(base)?;
                delegate(base)?;
            } else {
                fs::create_dir_all(base)?;
            }
            attempt += 1;
            match fs::create_dir(group) {
                // The monitor of the last other container removes an empty parent.
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < CREATE_ATTEMPTS => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
                created => return created,
            }
        }
    }

    /// Writes the limits of a container's group. What has no limit is unlimited.
    pub(crate) fn limit(&self, groups: &[PathBuf], limits: Limits) -> io::Result<()> {
        let quota = limits.cpu_milli.map(|milli| (milli * PERIOD_US / 1000).max(QUOTA_US_MIN));
        let shares = shares(limits.cpu_request_milli);
        match (self, groups) {
            (Self::V2(_), [group]) => {
                let memory = limits.memory_bytes.map_or_else(|| "max".to_owned(), |bytes| bytes.to_string());
                fs::write(group.join("memory.max"), memory)?;
                if limits.memory_bytes.is_some() {
                    // No swap, where it is accounted; and all processes of a container end together.
                    let _ = fs::write(group.join("memory.swap.max"), "0");
                    let _ = fs::write(group.join("memory.oom.group"), "1");
                }
                let quota = quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
                fs::write(group.join("cpu.max"), format!("{quota} {PERIOD_US}"))?;
                fs::write(group.join("cpu.weight"), weight(shares).to_string())
            }
            (Self::V1 { .. }, [memory, cpu]) => {
                let bytes = limits.memory_bytes.map_or_else(|| "-1".to_owned(), |bytes| bytes.to_string());
                let (limit, with_swap) =
                    (memory.join("memory.limit_in_bytes"), memory.join("memory.memsw.limit_in_bytes"));
                // The limit with swap is never below that without: one of the two orders fits.
                let _ = fs::write(&with_swap, &bytes);
                fs::write(&limit, &bytes)?;
                let _ = fs::write(&with_swap, &bytes);
                let quota = quota.map_or_else(|| "-1".to_owned(), |quota| quota.to_string());
                fs::write(cpu.join("cpu.cfs_quota_us"), quota)?;
                fs::write(cpu.join("cpu.shares"), shares.to_string())
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

/// Returns the shares of a request of cpu, as kubelets do: 1024 of a core.
fn shares(request_milli: Option<u64>) -> u64 {
    const MIN: u64 = 2;
    const MAX: u64 = 262_144;
    (request_milli.unwrap_or(0) * 1024 / 1000).clamp(MIN, MAX)
}

/// Returns the weight in version 2 for shares of version 1, by the curve that container runtimes use: 1024 shares are the
/// default weight of 100.
fn weight(shares: u64) -> u64 {
    let exponent = (shares as f64).log2();
    let curve = (exponent * exponent + 125.0 * exponent) / 612.0 - 7.0 / 34.0;
    (10_f64.powf(curve).ceil() as u64).clamp(1, 10_000)
}

/// Returns the bytes of memory that a container uses.
pub(crate) fn memory_used(groups: &[PathBuf]) -> Option<u64> {
    let files = groups
        .iter()
        .flat_map(|group| ["memory.current", "memory.usage_in_bytes"].map(|name| group.join(name)));
    files.filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).next()
}

/// Moves this process into the groups of a container.
pub(crate) fn enter(groups: &[PathBuf]) -> io::Result<()> {
    groups.iter().try_for_each(|group| fs::write(group.join(PROCESSES), "0"))
}

/// Returns true if the kernel ended a process of a container for want of memory.
pub(crate) fn is_oom_killed(groups: &[PathBuf]) -> bool {
    groups.iter().flat_map(|group| ["memory.events", "memory.oom_control"].map(|name| group.join(name))).any(
        |path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let killed = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            killed.is_some_and(|count| count.trim() != "0")
        },
    )
}

/// Removes the groups of a container, and the node's own if it has no other.
pub(crate) fn remove(groups: &[PathBuf]) {
    for group in groups {
        let _ = fs::remove_dir(group);
        if let Some(base) = group.parent() {
            let _ = fs::remove_dir(base);
        }
    }
}

/// Lets groups below one have the controllers. A group with processes cannot, so this process leaves it if it may.
fn delegate(group: &Path) -> io::Result<()> {
    let enabled = fs::read_to_string(group.join(SUBTREE))?;
    if CONTROLLERS.iter().all(|name| enabled.split_whitespace().any(|known| known == *name)) {
        return Ok(());
    }
    let enable = || fs::write(group.join(SUBTREE), "+memory +cpu");
    if enable().is_ok() {
        return Ok(());
    }
    let leaf = group.join("orlop");
    fs::create_dir_all(&leaf)?;
    fs::write(leaf.join(PROCESSES), "0")?;
    enable().inspect_err(|_| {
        // Others are in the group too.
        let _ = fs::write(group.join(PROCESSES), "0");
        let _ = fs::remove_dir(&leaf);
    })
}

/// Returns the node's own groups by the tables of mounts and of this process's groups.
fn locate(mounts: &str, own: &str, name: &str) -> Option<Cgroups> {
    let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
    let place = |mount: &Mount<'_>, controller: &str| -> Option<PathBuf> {
        let path = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            (controllers.split(',').any(|known| known == controller)).then_some(path)
        })?;
        let inner = path.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or(path);
        Some(Path::new(mount.point).join(inner.trim_start_matches('/')))
    };
    let unified = mounts.iter().find(|mount| mount.kind == "cgroup2").and_then(|mount| place(mount, ""));
    let has_controllers = |group: &PathBuf| {
        let known = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
        CONTROLLERS.iter().all(|name| known.split_whitespace().any(|known| known == *name))
    };
    if let Some(group) = unified.filter(has_controllers) {
        return Some(Cgroups::V2(group.join(name)));
    }
    let of = |controller: &str| {
        let mut all = mounts.iter().filter(|mount| mount.kind == "cgroup");
        let mount = all.find(|mount| mount.options.split(',').any(|option| option == controller))?;
        Some(place(mount, controller)?.join(name))
    };
    Some(Cgroups::V1 { memory: of("memory")?, cpu: of("cpu")? })
}

/// A line of the table of mounts.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (first, second) = line.split_once(" - ")?;
        let mut first = first.split(' ').skip(3);
        let mut second = second.split(' ');
        Some(Self {
            root: first.next()?,
            point: first.next()?,
            kind: second.next()?,
            options: second.nth(1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_version_1_are_found_below_the_own_group() {
        let mounts = "1 2 0:3 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      4 2 0:5 /box /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                      6 2 0:7 / /sys/fs/cgroup/nothing rw - cgroup2 cgroup2 rw";
        let own = "4:memory:/one/two\n1:cpu,cpuacct:/box/three\n0::/";
        let expected = Cgroups::V1 {
            memory: "/sys/fs/cgroup/memory/one/two/n".into(),
            cpu: "/sys/fs/cgroup/cpu/three/n".into(),
        };
        assert_eq!(locate(mounts, own, "n"), Some(expected));
        assert_eq!(locate("", own, "n"), None);
    }

    #[test]
    fn hierarchy_of_version_2_is_preferred() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("own")).unwrap();
        fs::write(folder.path().join("own/cgroup.controllers"), "cpuset cpu io memory pids").unwrap();
        let mounts = format!("1 2 0:3 / {} rw - cgroup2 cgroup2 rw", folder.path().display());
        let expected = Cgroups::V2(folder.path().join("own/n"));
        assert_eq!(locate(&mounts, "0::/own", "n"), Some(expected));
    }

    #[test]
    fn requests_are_shares_and_weights() {
        assert_eq!([None, Some(100), Some(1000), Some(10_000_000)].map(shares), [2, 102, 1024, 262_144]);
        assert_eq!([2, 1024, 262_144].map(weight), [1, 100, 10_000]);
    }

    #[test]
    fn kills_for_want_of_memory_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let groups = [folder.path().to_owned()];
        let path = folder.path().join("memory.events");
        fs::write(&path, "low 0\nhigh 0\nmax 5\noom 0\noom_kill 0\n").unwrap();
        assert!(!is_oom_killed(&groups));
        fs::write(&path, "low 0\nhigh 0\nmax 5\noom 1\noom_kill 1\n").unwrap();
        assert!(is_oom_killed(&groups));
    }
}
