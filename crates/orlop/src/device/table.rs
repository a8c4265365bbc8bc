//! The table of devices.

use std::time::{SystemTime, UNIX_EPOCH};

use orlop_device_client::api::{Condition, Gpu, ObjectMeta};

/// Columns and their minimum widths.
const COLUMNS: [(&str, usize); 8] = [
    ("NAME", 40),
    ("PRODUCT", 14),
    ("READY", 7),
    ("MEMORY", 7),
    ("THERMAL", 8),
    ("XID", 7),
    ("ACTION", 16),
    ("AGE", 5),
];
const CONDITIONS: [&str; 4] = ["Ready", "MemoryHealthy", "ThermalHealthy", "XidHealthy"];

const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// Style of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) color: bool,
}

impl Table {
    /// Returns the heading and the rows, with columns as wide as their content.
    pub(crate) fn draw<'a>(self, gpus: impl Iterator<Item = &'a Gpu>) -> String {
        let rows: Vec<_> = gpus.map(cells).collect();
        let widths: Vec<usize> = (0..COLUMNS.len())
            .map(|column| {
                let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
                widest.max(COLUMNS[column].0.len()) + 3
            })
            .collect();
        let mut text = self.line(&COLUMNS.map(|(name, _)| name.to_owned()), &widths);
        text.push('\n');
        for row in &rows {
            text.push_str(&self.line(row, &widths));
            text.push('\n');
        }
        text
    }

    pub(crate) fn heading(self) -> String {
        self.line(&COLUMNS.map(|(name, _)| name.to_owned()), &COLUMNS.map(|(_, width)| width + 3))
    }

    pub(crate) fn row(self, gpu: &Gpu) -> String {
        self.line(&cells(gpu), &COLUMNS.map(|(_, width)| width + 3))
    }

    fn line(self, cells: &[String; COLUMNS.len()], widths: &[usize]) -> String {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()).max(1));
            let color = match cell.split_once(' ').map_or(cell.as_str(), |(first, _)| first) {
                "False" => RED,
                "Unknown" => YELLOW,
                _ => "",
            };
            if self.color && !color.is_empty() {
                line.push_str(&format!("{color}{cell}{PLAIN}{padding}"));
            } else {
                line.push_str(cell);
                line.push_str(&padding);
            }
        }
        line.trim_end().to_owned()
    }
}

fn condition<'a>(gpu: &'a Gpu, kind: &str) -> Option<&'a Condition> {
    gpu.status.as_ref()?.conditions.iter().find(|condition| condition.r#type == kind)
}

pub(crate) fn is_ready(gpu: &Gpu) -> bool {
    condition(gpu, CONDITIONS[0]).is_some_and(|condition| condition.status == "True")
}

fn cells(gpu: &Gpu) -> [String; COLUMNS.len()] {
    let none = ObjectMeta::default();
    let meta = gpu.object_meta.as_ref().unwrap_or(&none);
    let name = match meta.namespace() {
        "" | "default" => meta.name().to_owned(),
        namespace => format!("{namespace}/{}", meta.name()),
    };
    let product = meta.labels.get("device.nvidia.com/product").cloned().unwrap_or_default();
    let [ready, memory, thermal, xid] = CONDITIONS.map(|kind| match condition(gpu, kind) {
        None => "-".to_owned(),
        Some(condition) if condition.status == "True" || condition.reason.is_empty() => {
            printable(&condition.status)
        }
        Some(condition) => format!("{} ({})", printable(&condition.status), printable(&condition.reason)),
    });
    let action = gpu.status.as_ref().and_then(|status| status.recommended_action.as_deref()).unwrap_or("-");
    let created = meta.creation_timestamp.map_or(0, |time| time.seconds);
    [name, product, ready, memory, thermal, xid, printable(action), age(created)]
}

/// Replaces control characters: text of others must not move the cursor.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Formats an age in its two largest units.
fn age(created: i64) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = i64::try_from(since).unwrap_or_default().saturating_sub(created).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use orlop_device_client::api::GpuStatus;

    use super::*;

    #[test]
    fn a_device_is_one_line_that_says_what_is_wrong() {
        let condition = |kind: &str, status: &str, reason: &str| Condition {
            r#type: kind.into(),
            status: status.into(),
            reason: reason.into(),
            ..Condition::default()
        };
        let gpu = Gpu {
            object_meta: Some(ObjectMeta { name: Some("gpu-1".into()), ..ObjectMeta::default() }),
            status: Some(GpuStatus {
                conditions: vec![
                    condition("Ready", "False", "Xid79"),
                    condition("MemoryHealthy", "True", "NoErrors"),
                ],
                recommended_action: Some("RESTART_BM\x1b[2J".into()),
            }),
            ..Gpu::default()
        };
        let text = Table { color: false }.draw([&gpu].into_iter());
        let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row[..6], ["gpu-1", "False", "(Xid79)", "True", "-", "-"]);
        assert!(row[6].starts_with("RESTART_BM") && !text.contains('\x1b'), "{text}");
        assert!(Table { color: true }.draw([&gpu].into_iter()).contains(RED));
        assert!(!is_ready(&gpu));
    }
}
