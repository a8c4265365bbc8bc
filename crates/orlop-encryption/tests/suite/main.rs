//! Encryption of a store: in a file, under rotated keys, by a KMS plugin.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod keys;
mod kms;
mod plugin;

use std::{path::Path, sync::Arc, time::Duration};

use orlop_encryption::{Encryption, KmsTiming};
use orlop_store::{Config, Endpoint, KeyRange, Put, Read, Store, Terms, Txn};

pub(crate) const KEY: &str = "/registry/core/secrets/default/a";
pub(crate) const PLAIN: &str = "{\"kind\":\"Secret\",\"data\":\"the-plaintext\"}";

/// Returns a key in base64: 32 times the same letter.
pub(crate) fn secret(letter: char) -> &'static str {
    match letter {
        'a' => "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=",
        'b' => "YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=",
        _ => "Y2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2M=",
    }
}

/// Writes a configuration for secrets.
pub(crate) fn configure(folder: &Path, providers: &str) {
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  \
         providers: [{providers}]\n"
    );
    std::fs::write(folder.join("encryption.yaml"), text).unwrap();
}

pub(crate) fn quick() -> KmsTiming {
    KmsTiming {
        healthy_interval: Duration::from_millis(20),
        unhealthy_interval: Duration::from_millis(20),
        write_max: Duration::from_millis(400),
    }
}

/// Opens a store in a folder under the folder's configuration.
pub(crate) async fn open(folder: &Path) -> (Store, Arc<Encryption>) {
    try_open(folder).await.unwrap()
}

pub(crate) async fn try_open(folder: &Path) -> Result<(Store, Arc<Encryption>), String> {
    let encryption = Encryption::load(&folder.join("encryption.yaml"), quick()).await;
    let encryption = encryption.map_err(|error| error.to_string())?;
    let mut config = Config::new(Endpoint::Sqlite(folder.join("store.db")));
    config.transformer = Some(encryption.clone());
    let store = Store::open(config).await.unwrap();
    encryption.open_index(&store).await?;
    Ok((store, encryption))
}

/// Opens a store that encrypts nothing.
pub(crate) async fn open_clear(folder: &Path) -> Store {
    Store::open(Config::new(Endpoint::Sqlite(folder.join("store.db")))).await.unwrap()
}

pub(crate) fn put(key: &str, value: &str) -> Put {
    Put { terms: Terms::new([("l:app", "secret-label")]), ..Put::new(key.to_owned(), value.to_owned()) }
}

pub(crate) async fn create(store: &Store, key: &str) {
    assert!(store.txn(Txn::create(put(key, PLAIN))).await.unwrap().succeeded);
}

/// Reads the value of a key, and true if it is stale.
pub(crate) async fn read(store: &Store, key: &str) -> Result<(String, bool), String> {
    let read =
        store.read(Read::new(KeyRange::key(key.to_owned()))).await.map_err(|error| error.to_string())?;
    let kv = &read.kvs[0];
    Ok((String::from_utf8(kv.value.to_vec()).unwrap(), kv.stale))
}

/// Returns true if any file of the store contains a text.
pub(crate) fn files_contain(folder: &Path, text: &str) -> bool {
    let mut found = false;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("store.db") {
            // The log goes away with the last connection.
            let bytes = std::fs::read(&path).unwrap_or_default();
            found |= bytes.windows(text.len()).any(|window| window == text.as_bytes());
        }
    }
    found
}
