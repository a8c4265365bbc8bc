//! GPUs by NVML, the driver's library. It is loaded when the agent starts; nothing links to it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt, thread,
    time::{Duration, Instant},
};

use nvml_wrapper::{
    Device, EventSet, Nvml as Library,
    bitmasks::{device::ThrottleReasons, event::EventTypes},
    enum_wrappers::device::{EccCounter, MemoryError, TemperatureThreshold},
    enums::{device::SampleValue, event::XidError},
    error::NvmlError,
    structs::device::FieldId,
    sys_exports::field_id::{NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING},
};

use super::{
    health::{Reading, Remap},
    source::{MakeSource, NoDriver, Source, now},
};

/// A source that reads NVML.
pub struct Nvml<'library> {
    library: &'library Library,
    driver: String,
    /// XID events. `None` if the driver does not support them.
    events: Option<EventSet<'library>>,
    /// The last XID of each GPU.
    xids: HashMap<String, (u64, i64)>,
    /// The last successful reading by index, which identifies a lost GPU.
    last: BTreeMap<u32, Reading>,
}

impl fmt::Debug for Nvml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvml").field("driver", &self.driver).field("last", &self.last).finish_non_exhaustive()
    }
}

impl Nvml<'_> {
    /// Loads the library on the thread that uses it.
    pub fn source() -> MakeSource {
        Box::new(|with| {
            let library = Library::init().map_err(|error| NoDriver::new(reason(&error)))?;
            let driver = library.sys_driver_version().unwrap_or_else(|_| "unknown".to_owned());
            let events = events(&library);
            let mut source =
                Nvml { library: &library, driver, events, xids: HashMap::new(), last: BTreeMap::new() };
            with(&mut source);
            Ok(())
        })
    }

    fn device(&self, index: u32) -> Result<Reading, NvmlError> {
        let device = self.library.device_by_index(index)?;
        let uuid = device.uuid()?;
        let slowdown_celsius = device.temperature_threshold(TemperatureThreshold::Slowdown).ok();
        let heat = ThrottleReasons::HW_THERMAL_SLOWDOWN | ThrottleReasons::SW_THERMAL_SLOWDOWN;
        Ok(Reading {
            product: device.name()?,
            pci_bus_id: device.pci_info()?.bus_id,
            driver: self.driver.clone(),
            memory_bytes: device.memory_info().ok().map(|memory| memory.total),
            lost: None,
            hot: device.current_throttle_reasons().ok().map(|reasons| reasons.intersects(heat)),
            slowdown_celsius,
            uncorrectable_errors: device
                .total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
                .ok(),
            remap: remap(&device),
            xid: self.xids.get(&uuid).copied(),
            uuid,
        })
    }
}

impl Source for Nvml<'_> {
    fn describe(&self) -> String {
        let xid = if self.events.is_some() { "with" } else { "without" };
        format!("NVML, driver {}, {xid} XID events", self.driver)
    }

    fn wait(&mut self, wait: Duration) {
        let until = Instant::now() + wait;
        let Some(events) = &self.events else { return thread::sleep(wait) };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
            match events.wait(left_ms.max(1)) {
                Ok(event) => {
                    if let (Ok(uuid), Some(XidError::Value(xid))) = (event.device.uuid(), event.event_data) {
                        tracing::warn!(uuid, xid, "XID error");
                        self.xids.insert(uuid, (xid, now()));
                        return;
                    }
                }
                Err(NvmlError::Timeout) => return,
                Err(error) => {
                    // Such as a lost GPU, which the next reading reports.
                    tracing::debug!(%error, "cannot wait for XID events");
                    return thread::sleep(left.min(wait));
                }
            }
        }
    }

    fn read(&mut self) -> Result<Vec<Reading>, String> {
        let count = self.library.device_count().map_err(|error| reason(&error))?;
        let mut readings = Vec::new();
        for index in 0..count {
            match self.device(index) {
                Ok(reading) => {
                    self.last.insert(index, reading.clone());
                    readings.push(reading);
                }
                Err(error) => match self.last.get(&index) {
                    Some(last) => readings.push(Reading { lost: Some(reason(&error)), ..last.clone() }),
                    None => tracing::warn!(index, error = reason(&error), "cannot read a GPU"),
                },
            }
        }
        Ok(readings)
    }
}

fn events(library: &Library) -> Option<EventSet<'_>> {
    let mut set = library.create_event_set().ok()?;
    for index in 0..library.device_count().ok()? {
        let device = library.device_by_index(index).ok()?;
        match device.register_events(EventTypes::CRITICAL_XID_ERROR, set) {
            Ok(with) => set = with,
            Err(error) => {
                // The call consumed the set. Readings work without events.
                tracing::warn!(index, error = %error.error, "the driver does not support XID events");
                return None;
            }
        }
    }
    Some(set)
}

fn remap(device: &Device<'_>) -> Option<Remap> {
    let fields = [FieldId(NVML_FI_DEV_REMAPPED_PENDING), FieldId(NVML_FI_DEV_REMAPPED_FAILURE)];
    let mut values = device.field_values_for(&fields).ok()?.into_iter().map(|sample| {
        Some(match sample.ok()?.value.ok()? {
            SampleValue::U32(value) => value != 0,
            SampleValue::U64(value) => value != 0,
            SampleValue::I64(value) => value != 0,
            SampleValue::F64(value) => value != 0.0,
        })
    });
    Some(Remap { pending: values.next()??, failed: values.next()?? })
}

/// Describes an NVML error.
fn reason(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(_) => "NVIDIA's library cannot be loaded (libnvidia-ml.so.1)".to_owned(),
        NvmlError::DriverNotLoaded => "NVIDIA's driver is not loaded".to_owned(),
        NvmlError::NoPermission => "no permission to use NVIDIA's driver".to_owned(),
        NvmlError::GpuLost => "the GPU has fallen off the bus".to_owned(),
        other => other.to_string(),
    }
}
