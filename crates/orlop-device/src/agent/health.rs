//! From what a driver reports to what a GPU's status says. Pure: no clock, no driver.
//!
//! Messages leave out what moves all the time, such as a temperature, so that a status is written when a
//! condition changes and not with every reading.

use orlop_device_client::api::Condition;

use super::xid::{self, Action};

/// A GPU, as its driver sees it. What a driver does not report is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// `GPU-…`.
    pub uuid: String,
    /// The product, e.g. "NVIDIA H200".
    pub product: String,
    /// Where it sits.
    pub pci_bus_id: String,
    /// The driver's version.
    pub driver: String,
    /// Bytes of its memory.
    pub memory_bytes: Option<u64>,
    /// Why it cannot be read, if it cannot.
    pub lost: Option<String>,
    /// Whether it is slowed down by heat.
    pub hot: Option<bool>,
    /// The temperature at which it slows down.
    pub slowdown_celsius: Option<u32>,
    /// Memory errors since the driver was loaded that could not be corrected.
    pub uncorrectable_errors: Option<u64>,
    /// What became of memory rows that failed.
    pub remap: Option<Remap>,
    /// The last error that the driver reported, with when (Unix seconds).
    pub xid: Option<(u64, i64)>,
}

/// What became of memory rows that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remap {
    /// Spare rows will replace them at the next reset.
    pub pending: bool,
    /// There were no spare rows left.
    pub failed: bool,
}

/// What a GPU's status should say: the agent's conditions, and the gravest of the actions they call for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Health {
    pub(super) conditions: Vec<Condition>,
    pub(super) action: Option<Action>,
}

/// Types of the conditions that are the agent's.
pub(super) const READY: &str = "Ready";
pub(super) const MEMORY: &str = "MemoryHealthy";
pub(super) const THERMAL: &str = "ThermalHealthy";
pub(super) const XID: &str = "XidHealthy";
pub(super) const TYPES: [&str; 4] = [READY, MEMORY, THERMAL, XID];

struct Verdict {
    status: &'static str,
    reason: String,
    message: String,
    action: Option<Action>,
}

fn verdict(status: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Verdict {
    Verdict { status, reason: reason.into(), message: message.into(), action: None }
}

impl Verdict {
    fn with(self, action: Action) -> Self {
        Self { action: Some(action), ..self }
    }
}

/// Judges a reading.
pub(super) fn judge(reading: &Reading) -> Health {
    let verdicts = [ready(reading), memory(reading), thermal(reading), errors(reading)];
    let action = verdicts.iter().filter_map(|verdict| verdict.action).max();
    let conditions = TYPES.iter().zip(verdicts).map(|(kind, verdict)| Condition {
        r#type: (*kind).to_owned(),
        status: verdict.status.to_owned(),
        reason: verdict.reason,
        message: verdict.message,
        ..Condition::default()
    });
    Health { conditions: conditions.collect(), action }
}

/// What to say of a GPU that was registered and is not there any more.
pub(super) fn missing(why: &str) -> Health {
    let reading = Reading { lost: Some(why.to_owned()), ..Reading::default() };
    judge(&reading)
}

fn ready(reading: &Reading) -> Verdict {
    if let Some(why) = &reading.lost {
        return verdict("False", "DeviceLost", why.clone()).with(Action::RestartMachine);
    }
    match reading.xid.and_then(|(number, _)| Some((number, xid::meaning(number)?))) {
        Some((number, meaning)) if meaning.fatal => {
            verdict("False", format!("Xid{number}"), meaning.text).with(meaning.action)
        }
        _ => verdict("True", "DeviceReady", "the driver can use the device"),
    }
}

fn memory(reading: &Reading) -> Verdict {
    if reading.lost.is_some() {
        return verdict("Unknown", "DeviceLost", "");
    }
    let remap = reading.remap.unwrap_or_default();
    if remap.failed {
        return verdict("False", "RowRemapFailed", "a failed memory row has no spare left")
            .with(Action::ContactSupport);
    }
    if remap.pending {
        return verdict("False", "RowRemapPending", "a failed memory row is replaced at the next reset")
            .with(Action::ComponentReset);
    }
    match (reading.uncorrectable_errors, reading.remap) {
        (Some(count), _) if count > 0 => {
            verdict("False", "UncorrectableErrors", "memory errors could not be corrected")
                .with(Action::ComponentReset)
        }
        (None, None) => verdict("Unknown", "NotReported", "the driver does not report memory errors"),
        _ => verdict("True", "NoErrors", "no memory error that could not be corrected"),
    }
}

fn thermal(reading: &Reading) -> Verdict {
    if reading.lost.is_some() {
        return verdict("Unknown", "DeviceLost", "");
    }
    let limit = reading.slowdown_celsius.map(|limit| format!(" (from {limit} °C on)")).unwrap_or_default();
    match reading.hot {
        Some(true) => verdict("False", "ThermalSlowdown", format!("slowed down by heat{limit}")),
        Some(false) => verdict("True", "Cool", format!("not slowed down by heat{limit}")),
        None => verdict("Unknown", "NotReported", "the driver does not report heat"),
    }
}

fn errors(reading: &Reading) -> Verdict {
    match reading.xid.and_then(|(number, _)| Some((number, xid::meaning(number)?))) {
        Some((number, meaning)) => {
            verdict("False", format!("Xid{number}"), format!("XID {number}: {}", meaning.text))
                .with(meaning.action)
        }
        None if reading.lost.is_some() => verdict("Unknown", "DeviceLost", ""),
        None => verdict("True", "NoErrors", "the driver has reported no error of the device"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> Reading {
        Reading {
            uuid: "GPU-1".into(),
            hot: Some(false),
            uncorrectable_errors: Some(0),
            remap: Some(Remap::default()),
            ..Reading::default()
        }
    }

    fn said(reading: &Reading) -> (Vec<(String, String)>, Option<Action>) {
        let health = judge(reading);
        (health.conditions.into_iter().map(|c| (c.status, c.reason)).collect(), health.action)
    }

    fn expect(reading: &Reading, conditions: [(&str, &str); 4], action: Option<Action>) {
        let conditions: Vec<_> = conditions.map(|(s, r)| (s.to_owned(), r.to_owned())).to_vec();
        assert_eq!(said(reading), (conditions, action));
    }

    #[test]
    fn a_well_gpu_is_ready() {
        let fine = [("True", "DeviceReady"), ("True", "NoErrors"), ("True", "Cool"), ("True", "NoErrors")];
        expect(&well(), fine, None);
        // A program that misbehaves is no fault of the GPU.
        expect(&Reading { xid: Some((31, 1)), ..well() }, fine, None);
    }

    #[test]
    fn trouble_is_told_with_the_gravest_action() {
        let remap = Some(Remap { pending: true, failed: false });
        expect(
            &Reading { remap, xid: Some((79, 1)), hot: Some(true), ..well() },
            [
                ("False", "Xid79"),
                ("False", "RowRemapPending"),
                ("False", "ThermalSlowdown"),
                ("False", "Xid79"),
            ],
            Some(Action::RestartMachine),
        );
        expect(
            &Reading { xid: Some((94, 1)), ..well() },
            [("True", "DeviceReady"), ("True", "NoErrors"), ("True", "Cool"), ("False", "Xid94")],
            Some(Action::ComponentReset),
        );
        expect(
            &Reading { uncorrectable_errors: Some(2), ..well() },
            [
                ("True", "DeviceReady"),
                ("False", "UncorrectableErrors"),
                ("True", "Cool"),
                ("True", "NoErrors"),
            ],
            Some(Action::ComponentReset),
        );
    }

    #[test]
    fn what_is_not_reported_is_unknown() {
        expect(
            &Reading { uuid: "GPU-1".into(), ..Reading::default() },
            [
                ("True", "DeviceReady"),
                ("Unknown", "NotReported"),
                ("Unknown", "NotReported"),
                ("True", "NoErrors"),
            ],
            None,
        );
        let lost = Reading { lost: Some("gone".into()), ..well() };
        let unknown = ("Unknown", "DeviceLost");
        expect(&lost, [("False", "DeviceLost"), unknown, unknown, unknown], Some(Action::RestartMachine));
    }
}
