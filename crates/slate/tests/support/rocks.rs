//! The rocks store.

use std::{path::Path, sync::Arc};

use slate::{
    Engine,
    store::{RocksOptions, RocksStore},
};

/// Opens the rocks store in a folder, with so many bytes of it in memory.
pub(crate) fn open_with(path: &Path, resident_bytes: u64) -> slate::Result<Engine> {
    let options = RocksOptions { resident_bytes, ..RocksOptions::default() };
    Engine::open(Arc::new(RocksStore::open(path, &options)?))
}
