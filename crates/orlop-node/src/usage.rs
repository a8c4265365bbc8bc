//! Use of cpu and memory, as /proc shows it.

use std::fs;

use crate::shim::processes;

/// Unit of times in /proc, which Linux has promised to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// Time of cpus and memory in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) memory_bytes: u64,
}

impl Usage {
    fn add(&mut self, other: Self) {
        self.cpu_seconds += other.cpu_seconds;
        self.memory_bytes += other.memory_bytes;
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, usage| {
            sum.add(usage);
            sum
        })
    }
}

/// Returns the usage of a container by the process of its monitor. Ended processes count for whoever collected them, so that
/// the time never falls.
pub(crate) fn of_container(monitor: i32) -> Usage {
    let collected = stat(monitor).map_or(0, |stat| stat.collected);
    let mut usage = Usage { cpu_seconds: seconds(collected), memory_bytes: 0 };
    for pid in processes::descendants(monitor) {
        let Some(stat) = stat(pid) else { continue };
        usage.add(Usage {
            cpu_seconds: seconds(stat.own + stat.collected),
            memory_bytes: resident_bytes(pid),
        });
    }
    usage
}

/// Returns the usage of the machine.
pub(crate) fn of_machine() -> Usage {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let times = read("/proc/stat");
    let times: Vec<u64> = times
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))
        .map(|line| line.split_whitespace().filter_map(|number| number.parse().ok()).collect())
        .unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let busy: u64 = times
        .iter()
        .take(8)
        .enumerate()
        .filter(|(index, _)| !matches!(index, 3 | 4))
        .map(|(_, time)| time)
        .sum();
    let memory = read("/proc/meminfo");
    let used = bytes(&memory, "MemTotal:").saturating_sub(bytes(&memory, "MemAvailable:"));
    Usage { cpu_seconds: seconds(busy), memory_bytes: used }
}

fn resident_bytes(pid: i32) -> u64 {
    bytes(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(), "VmRSS:")
}

/// Returns an amount of a table that is in units of 1024 bytes.
fn bytes(table: &str, name: &str) -> u64 {
    let line = table.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

struct Stat {
    /// Ticks of the process.
    own: u64,
    /// Ticks of its children that have ended.
    collected: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(text: &str) -> Option<Stat> {
    // The name of the program is in parentheses, and may have some itself.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat { own: number(11)? + number(12)?, collected: number(13)? + number(14)? })
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_program_may_have_parentheses() {
        let stat = parse("7 (a) b) S 1 7 7 0 -1 4194560 9 8 0 0 11 12 13 14 20 0 1 0 5 4096 25 0").unwrap();
        assert_eq!((stat.own, stat.collected), (23, 27));
    }

    #[test]
    fn machine_is_in_use() {
        let usage = of_machine();
        assert!(usage.cpu_seconds > 0.0 && usage.memory_bytes > 0, "{usage:?}");
    }
}
