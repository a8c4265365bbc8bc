//! Derives a GPU's conditions from a reading. Pure: no clock, no driver.
//!
//! Messages omit values that vary, such as the temperature, so that a status is written only when a condition changes.

use orlop_device_client::api::Condition;

use super::xid::{self, Action};

/// A reading of a GPU. Values that the driver does not report are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// `GPU-…`.
    pub uuid: String,
    /// The product, e.g. "NVIDIA H200".
    pub product: String,
    /// The PCI bus id.
    pub pci_bus_id: String,
    /// The driver's version.
    pub driver: String,
    /// Memory size in bytes.
    pub memory_bytes: Option<u64>,
    /// The error, if the GPU cannot be read.
    pub lost: Option<String>,
    /// The GPU is throttled because of its temperature.
    pub hot: Option<bool>,
    /// The throttling temperature.
    pub slowdown_celsius: Option<u32>,
    /// Uncorrectable memory errors since the driver was loaded.
    pub uncorrectable_errors: Option<u64>,
    /// Row remapping state.
    pub remap: Option<Remap>,
    /// The last XID error, with its time in Unix seconds.
    pub xid: Option<(u64, i64)>,
}

/// Row remapping state of the GPU's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remap {
    /// Failed rows are remapped at the next reset.
    pub pending: bool,
    /// Remapping failed for lack of spare rows.
    pub failed: bool,
}

/// The desired status of a GPU: the agent's conditions, and the most disruptive of the actions they call for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Health {
    pub(super) conditions: Vec<Condition>,
    pub(super) action: Option<Action>,
}

/// Condition types of the agent.
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

/// Derives the health of a GPU.
pub(super) fn assess(reading: &Reading) -> Health {
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

/// Returns the health of a registered GPU that the driver no longer lists.
pub(super) fn missing(why: &str) -> Health {
    let reading = Reading { lost: Some(why.to_owned()), ..Reading::default() };
    assess(&reading)
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

    fn healthy() -> Reading {
        Reading {
            uuid: "GPU-1".into(),
            hot: Some(false),
            uncorrectable_errors: Some(0),
            remap: Some(Remap::default()),
            ..Reading::default()
        }
    }

    fn summary(reading: &Reading) -> (Vec<(String, String)>, Option<Action>) {
        let health = assess(reading);
        (health.conditions.into_iter().map(|c| (c.status, c.reason)).collect(), health.action)
    }

    fn expect(reading: &Reading, conditions: [(&str, &str); 4], action: Option<Action>) {
        let conditions: Vec<_> = conditions.map(|(s, r)| (s.to_owned(), r.to_owned())).to_vec();
        assert_eq!(summary(reading), (conditions, action));
    }

    #[test]
    fn healthy_gpu_is_ready() {
        let fine = [("True", "DeviceReady"), ("True", "NoErrors"), ("True", "Cool"), ("True", "NoErrors")];
        expect(&healthy(), fine, None);
        // XID 31 is an error of an application.
        expect(&Reading { xid: Some((31, 1)), ..healthy() }, fine, None);
    }

    #[test]
    fn most_disruptive_action_is_recommended() {
        let remap = Some(Remap { pending: true, failed: false });
        expect(
            &Reading { remap, xid: Some((79, 1)), hot: Some(true), ..healthy() },
            [
                ("False", "Xid79"),
                ("False", "RowRemapPending"),
                ("False", "ThermalSlowdown"),
                ("False", "Xid79"),
            ],
            Some(Action::RestartMachine),
        );
        expect(
            &Reading { xid: Some((94, 1)), ..healthy() },
            [("True", "DeviceReady"), ("True", "NoErrors"), ("True", "Cool"), ("False", "Xid94")],
            Some(Action::ComponentReset),
        );
        expect(
            &Reading { uncorrectable_errors: Some(2), ..healthy() },
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
    fn unreported_values_are_unknown() {
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
        let lost = Reading { lost: Some("gone".into()), ..healthy() };
        let unknown = ("Unknown", "DeviceLost");
        expect(&lost, [("False", "DeviceLost"), unknown, unknown, unknown], Some(Action::RestartMachine));
    }
}
