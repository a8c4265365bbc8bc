//! The rocks store.

use std::{path::Path, sync::Arc};

use slate::{
    Engine,
    store::{RocksOptions, RocksStore},
};

/// Opens the rocks store in a folder.
pub(crate) fn open(path: &Path) -> slate::Result<Engine> {
    Engine::open(Arc::new(RocksStore::open(path, &RocksOptions::default())?))
}
