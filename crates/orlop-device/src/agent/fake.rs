//! Fake GPUs, for machines without any.

use std::{fmt::Write, thread, time::Duration};

use super::{
    health::{Reading, Remap},
    source::{MakeSource, Source},
};

/// Largest number of fake GPUs.
const COUNT_MAX: usize = 4096;

/// Fake GPUs, which are always healthy.
#[derive(Debug)]
pub struct Fake {
    count: usize,
}

impl Fake {
    /// Returns a source of `count` GPUs, at most 4096.
    pub fn source(count: usize) -> MakeSource {
        Box::new(move |with| {
            with(&mut Fake { count: count.min(COUNT_MAX) });
            Ok(())
        })
    }
}

/// Returns a UUID that depends on the index only, so that a restarted agent finds its objects.
fn uuid(index: usize) -> String {
    // A multiplicative hash.
    let mut hex = String::new();
    let mut state = index as u64 + 1;
    while hex.len() < 32 {
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x6f72_6c6f_7000;
        let _ = write!(hex, "{state:016x}");
    }
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32])
}

impl Source for Fake {
    fn describe(&self) -> String {
        format!("{} fake GPUs", self.count)
    }

    fn wait(&mut self, wait: Duration) {
        thread::sleep(wait);
    }

    fn read(&mut self) -> Result<Vec<Reading>, String> {
        let readings = (0..self.count).map(|index| Reading {
            uuid: uuid(index),
            product: "Fake GPU".to_owned(),
            pci_bus_id: format!("0000:{:02x}:{:02x}.0", index / 32, index % 32),
            driver: "none".to_owned(),
            memory_bytes: Some(80 << 30),
            lost: None,
            hot: Some(false),
            slowdown_celsius: Some(90),
            uncorrectable_errors: Some(0),
            remap: Some(Remap::default()),
            xid: None,
        });
        Ok(readings.collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn fake_uuids_are_unique_and_stable() {
        let uuids: HashSet<_> = (0..COUNT_MAX).map(uuid).collect();
        assert_eq!(uuids.len(), COUNT_MAX);
        assert_eq!(uuid(3), uuid(3));
        assert_eq!(uuid(0).len(), "GPU-6b7a32cf-3f6c-4d9e-9a53-2f9f6f0e7c11".len());
    }
}
