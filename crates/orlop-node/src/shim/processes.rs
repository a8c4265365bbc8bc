//! Processes as /proc shows them.

use std::{fs, io};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Returns the id of this boot of the machine.
pub(crate) fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Returns the descendants of a process, parents before children.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut wanted = vec![pid];
    while let Some(parent) = wanted.pop() {
        let children = children(parent);
        wanted.extend(&children);
        found.extend(children);
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}

/// Sends a signal. A process that is gone is no error.
pub(crate) fn signal(pid: i32, signal: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(()) };
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Kills the descendants of a process.
pub(crate) fn kill_descendants(pid: i32) {
    for descendant in descendants(pid) {
        let _ = signal(descendant, Signal::KILL);
    }
}

/// Kills the process group of a process that leads one.
pub(crate) fn kill_group(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// Returns true if a process handles or ignores a signal.
pub(crate) fn handles(pid: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let bit = 1_u64 << (signal.as_raw() - 1);
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    (mask("SigCgt:") | mask("SigIgn:")) & bit != 0
}
