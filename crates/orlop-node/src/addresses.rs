//! Addresses of pods: one of the loopback range each, so that every pod has all ports.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Mutex, PoisonError},
};

use crate::settings::PodRange;

/// First host of a range that a pod may have.
const FIRST: u32 = 2;

/// Addresses in use, by pod uid.
#[derive(Debug)]
pub(crate) struct Addresses {
    range: PodRange,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_pod: BTreeMap<String, Ipv4Addr>,
    /// Host to try next. An address rests before it is used again: clients may still hold it.
    next: u32,
}

impl Addresses {
    pub(crate) fn new(range: PodRange) -> Self {
        Self { range, state: Mutex::default() }
    }

    /// Returns the address of a pod: the one it has, the one it had, or a free one. `None` if all are taken.
    pub(crate) fn allocate(&self, uid: &str, earlier: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = state.by_pod.get(uid) {
            return Some(*address);
        }
        let is_free = |address: &Ipv4Addr| !state.by_pod.values().any(|taken| taken == address);
        let hosts = (1_u32 << (32 - self.range.prefix_bits)) - FIRST - 1;
        let next = (0..hosts)
            .map(|offset| (state.next + offset) % hosts)
            .map(|host| (Ipv4Addr::from(u32::from(self.range.network) + FIRST + host), host));
        let (address, next) = match earlier.filter(|address| self.contains(*address) && is_free(address)) {
            Some(address) => (address, state.next),
            None => {
                let mut next = next;
                let (address, host) = next.find(|(address, _)| is_free(address))?;
                (address, (host + 1) % hosts)
            }
        };
        state.next = next;
        state.by_pod.insert(uid.to_owned(), address);
        Some(address)
    }

    pub(crate) fn release(&self, uid: &str) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).by_pod.remove(uid);
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        let shift = 32 - self.range.prefix_bits;
        u32::from(address) >> shift == u32::from(self.range.network) >> shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_has_an_address_of_its_own_until_it_is_released() {
        let addresses = Addresses::new("127.64.0.0/28".parse().unwrap());
        let first = addresses.allocate("a", None).unwrap();
        assert_eq!(first, Ipv4Addr::new(127, 64, 0, 2));
        assert_eq!(addresses.allocate("a", None), Some(first));
        let others: Vec<_> = (0..12).map(|pod| addresses.allocate(&pod.to_string(), None).unwrap()).collect();
        assert!(!others.contains(&first));
        assert_eq!(addresses.allocate("z", None), None);
        addresses.release("a");
        assert_eq!(addresses.allocate("z", Some(first)), Some(first));
    }
}
