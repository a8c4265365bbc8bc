//! Engines on every store.

#[cfg(feature = "rocks")]
mod rocks;

use std::sync::Arc;

use slate::{Engine, store::MemoryStore};

/// Runs a test on every store that this build has.
pub(crate) fn on_every_store(test: impl Fn(&Engine)) {
    test(&Engine::open(Arc::new(MemoryStore::default())).expect("memory"));
    #[cfg(feature = "rocks")]
    // All of it in memory as well, some of it, and nothing.
    for resident_bytes in [128 << 20, 1000, 0] {
        let folder = tempfile::tempdir().expect("a folder");
        test(&rocks::open_with(folder.path(), resident_bytes).expect("rocks"));
    }
}
