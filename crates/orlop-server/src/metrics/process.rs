//! Process metrics, under the names that all exporters use.

use std::{fmt::Error, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

/// A sample of the process. What cannot be read is left out.
#[derive(Debug, Default)]
pub(super) struct Process {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<i64>,
    virtual_bytes: Option<i64>,
    open_files: Option<i64>,
    max_files: Option<i64>,
    start_seconds: Option<f64>,
}

/// Clock ticks per second and bytes per page, the same on every supported machine.
const TICKS: f64 = 100.0;
const PAGE: i64 = 4096;

impl Process {
    pub(super) fn now() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The program name in parentheses may contain anything; fields are counted after it.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |index: usize| fields.get(index)?.parse::<f64>().ok();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let open = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
        let boot = boot.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
        Self {
            cpu_seconds: field(11).zip(field(12)).map(|(user, system)| (user + system) / TICKS),
            resident_bytes: field(21).map(|pages| pages as i64 * PAGE),
            virtual_bytes: field(20).map(|bytes| bytes as i64),
            open_files: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as i64),
            max_files: open.and_then(|rest| rest.split_whitespace().next()?.parse().ok()),
            start_seconds: boot.zip(field(19)).map(|(boot, ticks)| boot + ticks / TICKS),
        }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        if let Some(seconds) = self.cpu_seconds {
            let counter = ConstCounter::new(seconds);
            let help = "Total user and system CPU time spent in seconds.";
            counter.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                help,
                None,
                MetricType::Counter,
            )?)?;
        }
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory size in bytes.", self.resident_bytes),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes.", self.virtual_bytes),
            ("process_open_fds", "Number of open file descriptors.", self.open_files),
            ("process_max_fds", "Maximum number of open file descriptors.", self.max_files),
        ] {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
            }
        }
        if let Some(seconds) = self.start_seconds {
            let gauge = ConstGauge::new(seconds);
            let help = "Start time of the process since unix epoch in seconds.";
            let name = "process_start_time_seconds";
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}
