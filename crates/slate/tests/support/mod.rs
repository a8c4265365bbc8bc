//! Engines on every store.

use std::sync::Arc;

use slate::{Engine, store::MemoryStore};

/// Runs a test on every store that this build has.
pub(crate) fn on_every_store(test: impl Fn(&Engine)) {
    test(&Engine::open(Arc::new(MemoryStore::default())).expect("memory"));
    #[cfg(feature = "rocks")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        test(&rocks(folder.path()).expect("rocks"));
    }
}

/// Opens the rocks store in a folder.
#[cfg(feature = "rocks")]
pub(crate) fn rocks(path: &std::path::Path) -> slate::Result<Engine> {
    use slate::store::{RocksOptions, RocksStore};
    Engine::open(Arc::new(RocksStore::open(path, &RocksOptions::default())?))
}
