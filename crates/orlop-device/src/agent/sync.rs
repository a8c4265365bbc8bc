//! Reconciliation: the writes that bring the registered objects to the desired state.

use std::{collections::HashMap, sync::Arc};

use orlop_device_client::{
    Connection,
    api::{
        Condition, CreateGpuRequest, Gpu, GpuSpec, GpuStatus, ObjectMeta, UpdateGpuRequest,
        UpdateGpuStatusRequest, gpu_service_client::GpuServiceClient,
    },
};
use tonic::{Code, Status};

use super::{
    health::{self, Health, Reading, TYPES, XID},
    xid::Action,
};

/// The label of objects that the agent registers.
pub const MANAGED_BY: (&str, &str) = ("device.nvidia.com/managed-by", "orlop-device-agent");
const PRODUCT: &str = "device.nvidia.com/product";
const ANNOTATIONS: &str = "device.nvidia.com";
/// Longest label value.
const LABEL_LENGTH_MAX: usize = 63;

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// Creates a GPU, then its status.
    Create(Gpu),
    /// Updates spec, labels and annotations.
    Update(Gpu),
    /// Updates the status.
    Status(Gpu),
}

impl Change {
    /// Sends the write.
    pub(super) async fn write(self, mut client: GpuServiceClient<Connection>) -> Result<(), Status> {
        let result = match self {
            Self::Create(gpu) => {
                let name = gpu.object_meta.as_ref().map_or("", ObjectMeta::name).to_owned();
                tracing::info!(name, "registering GPU");
                let status = gpu.status.clone();
                let created =
                    client.create_gpu(CreateGpuRequest { gpu: Some(gpu), opts: None }).await?.into_inner();
                let gpu = Gpu { status, ..created };
                client.update_gpu_status(UpdateGpuStatusRequest { gpu: Some(gpu), opts: None }).await
            }
            Self::Update(gpu) => client.update_gpu(UpdateGpuRequest { gpu: Some(gpu), opts: None }).await,
            Self::Status(gpu) => {
                client.update_gpu_status(UpdateGpuStatusRequest { gpu: Some(gpu), opts: None }).await
            }
        };
        match result {
            // A concurrent write: the cache will receive it and trigger the next reconcile.
            Err(status) if matches!(status.code(), Code::Aborted | Code::NotFound) => Ok(()),
            other => other.map(drop),
        }
    }
}

/// Returns the writes that bring `registered` to the state that was read.
pub(super) fn plan(read: &Result<Vec<Reading>, String>, registered: &[Arc<Gpu>], boot: i64) -> Vec<Change> {
    let mut unseen: HashMap<&str, &Arc<Gpu>> =
        registered.iter().map(|gpu| (gpu.object_meta.as_ref().map_or("", ObjectMeta::name), gpu)).collect();
    let mut changes = Vec::new();
    let (readings, why) = match read {
        Ok(readings) => (&readings[..], "the driver no longer lists the device"),
        Err(error) => (&[][..], error.as_str()),
    };
    for reading in readings {
        let name = reading.uuid.to_lowercase();
        match unseen.remove(name.as_str()) {
            None => changes.push(Change::Create(desired(reading, &name, boot))),
            Some(found) => changes.extend(compare(reading, &name, found, boot)),
        }
    }
    let mut lost: Vec<_> = unseen.into_values().collect();
    lost.sort_by_key(|gpu| gpu.object_meta.as_ref().and_then(|meta| meta.name.clone()));
    for found in lost {
        let status = status(&health::missing(why), found.status.as_ref(), boot);
        changes.extend(status_change(found, status));
    }
    changes
}

fn desired(reading: &Reading, name: &str, boot: i64) -> Gpu {
    let mut meta = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    set_metadata(reading, &mut meta);
    Gpu {
        type_meta: None,
        object_meta: Some(meta),
        spec: Some(GpuSpec { uuid: reading.uuid.clone() }),
        status: Some(status(&health::assess(reading), None, boot)),
    }
}

/// Sets the agent's labels and annotations. Others stay.
fn set_metadata(reading: &Reading, meta: &mut ObjectMeta) {
    meta.labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
    meta.labels.insert(PRODUCT.to_owned(), label_value(&reading.product));
    let memory = reading.memory_bytes.map(|bytes| bytes.to_string());
    let facts = [
        ("product-name", Some(&reading.product)),
        ("pci-bus-id", Some(&reading.pci_bus_id)),
        ("driver-version", Some(&reading.driver)),
        ("memory-bytes", memory.as_ref()),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact {
            meta.annotations.insert(format!("{ANNOTATIONS}/{name}"), fact.clone());
        }
    }
}

/// Converts a product name to a label value: "NVIDIA H200" becomes "NVIDIA-H200".
fn label_value(text: &str) -> String {
    let kept =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c } else { '-' });
    let kept: String = kept.take(LABEL_LENGTH_MAX).collect();
    kept.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

fn compare(reading: &Reading, name: &str, found: &Gpu, boot: i64) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut next = found.clone();
    let meta = next.object_meta.get_or_insert_default();
    meta.name = Some(name.to_owned());
    set_metadata(reading, meta);
    next.spec = Some(GpuSpec { uuid: reading.uuid.clone() });
    if next != *found {
        changes.push(Change::Update(next));
    }
    let status = status(&health::assess(reading), found.status.as_ref(), boot);
    changes.extend(status_change(found, status));
    changes
}

fn status_change(found: &Gpu, status: GpuStatus) -> Option<Change> {
    if found.status.as_ref() == Some(&status) {
        return None;
    }
    let mut next = found.clone();
    // Conditional on the resource version, so that conditions of others are not lost.
    next.status = Some(status);
    Some(Change::Status(next))
}

/// Merges `health` into the status `found`. The server sets transition times, so an unchanged condition keeps its own.
fn status(health: &Health, found: Option<&GpuStatus>, boot: i64) -> GpuStatus {
    let old = found.map_or(&[][..], |status| &status.conditions);
    let mut persisting = false;
    let mut conditions: Vec<Condition> = Vec::new();
    for wanted in &health.conditions {
        let before = old.iter().find(|condition| condition.r#type == wanted.r#type);
        let kept = before.filter(|before| {
            // An XID error of an earlier agent persists until the machine restarts.
            let persists = wanted.r#type == XID && wanted.status == "True" && persists(before, boot);
            persisting |= persists;
            persists || is_unchanged(before, wanted)
        });
        conditions.push(kept.unwrap_or(wanted).clone());
    }
    let others = old.iter().filter(|condition| !TYPES.contains(&condition.r#type.as_str()));
    conditions.extend(others.cloned());
    let recommended = found.and_then(|status| status.recommended_action.clone());
    let recommended_action = match health.action {
        Some(action) => Some(action.as_str().to_owned()),
        // The action for a persisting error stays, and so do actions of others.
        None => recommended.filter(|word| persisting || !Action::is_known(word)),
    };
    GpuStatus { conditions, recommended_action }
}

fn is_unchanged(a: &Condition, b: &Condition) -> bool {
    (&a.status, &a.reason, &a.message) == (&b.status, &b.reason, &b.message)
}

fn persists(condition: &Condition, boot: i64) -> bool {
    condition.status == "False" && condition.last_transition_time.is_some_and(|time| time.seconds >= boot)
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    fn reading(uuid: &str) -> Reading {
        Reading { uuid: uuid.into(), product: "NVIDIA H200".into(), hot: Some(false), ..Reading::default() }
    }

    /// Returns the object that a server holds after the writes.
    fn registered(reading: &Reading) -> Arc<Gpu> {
        let mut gpu = desired(reading, &reading.uuid.to_lowercase(), 0);
        for condition in gpu.status.iter_mut().flat_map(|status| &mut status.conditions) {
            condition.last_transition_time = Some(Timestamp { seconds: 100, nanos: 0 });
        }
        Arc::new(gpu)
    }

    #[test]
    fn gpu_is_registered_once_and_not_written_again() {
        let one = reading("GPU-AB");
        let changes = plan(&Ok(vec![one.clone()]), &[], 0);
        let [Change::Create(gpu)] = &changes[..] else { panic!("{changes:?}") };
        let meta = gpu.object_meta.as_ref().unwrap();
        assert_eq!(meta.name(), "gpu-ab");
        assert_eq!(meta.labels[PRODUCT], "NVIDIA-H200");
        assert_eq!(plan(&Ok(vec![one.clone()]), &[registered(&one)], 0), []);
    }

    #[test]
    fn conditions_and_labels_of_others_are_kept() {
        let one = reading("GPU-AB");
        let mut found = (*registered(&one)).clone();
        let status = found.status.as_mut().unwrap();
        status.conditions.push(Condition {
            r#type: "Drained".into(),
            status: "True".into(),
            ..Condition::default()
        });
        status.recommended_action = Some("DRAIN".into());
        found.object_meta.as_mut().unwrap().labels.insert("mine".into(), "1".into());
        let found = Arc::new(found);
        assert_eq!(plan(&Ok(vec![one.clone()]), std::slice::from_ref(&found), 0), []);
        let hot = Reading { hot: Some(true), ..one };
        let changes = plan(&Ok(vec![hot]), &[found], 0);
        let [Change::Status(gpu)] = &changes[..] else { panic!("{changes:?}") };
        let status = gpu.status.as_ref().unwrap();
        assert!(status.conditions.iter().any(|condition| condition.r#type == "Drained"));
        assert_eq!(status.recommended_action.as_deref(), Some("DRAIN"));
    }

    #[test]
    fn gpu_that_is_gone_is_not_ready() {
        let one = reading("GPU-AB");
        for read in [Ok(vec![]), Err("no driver".to_owned())] {
            let changes = plan(&read, &[registered(&one)], 0);
            let [Change::Status(gpu)] = &changes[..] else { panic!("{changes:?}") };
            let status = gpu.status.as_ref().unwrap();
            assert_eq!(
                (&*status.conditions[0].status, &*status.conditions[0].reason),
                ("False", "DeviceLost")
            );
        }
    }

    #[test]
    fn xid_error_persists_until_reboot() {
        let broken = Reading { xid: Some((94, 1)), ..reading("GPU-AB") };
        let found = registered(&broken);
        // A new agent has not seen the error itself.
        let fresh = reading("GPU-AB");
        assert_eq!(plan(&Ok(vec![fresh.clone()]), std::slice::from_ref(&found), 50), []);
        let changes = plan(&Ok(vec![fresh]), &[found], 200);
        let [Change::Status(gpu)] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!(gpu.status.as_ref().unwrap().recommended_action, None);
    }
}
