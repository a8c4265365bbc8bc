//! Keys of a KMS plugin.

use std::time::{Duration, Instant};

use orlop_encryption::Encryption;
use orlop_store::Txn;

use crate::{
    KEY, PLAIN, configure, create, files_contain, open,
    plugin::{Mode, Plugin},
    put, read, try_open,
};

/// Waits until a check holds.
async fn eventually<F: AsyncFn() -> bool>(check: F) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !check().await {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn values_are_sealed_by_the_plugin_and_its_seed_is_cached() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Plugin::start(folder.path());
    configure(folder.path(), &plugin.provider());
    let (store, encryption) = open(folder.path()).await;
    encryption.check().await.unwrap();
    create(&store, KEY).await;
    create(&store, "/registry/core/secrets/default/b").await;
    assert_eq!(read(&store, KEY).await.unwrap(), (PLAIN.to_owned(), false));
    assert_eq!(plugin.state().decrypted, 0, "the seed is in memory");
    store.close().await;
    drop(encryption);
    assert!(
        !files_contain(folder.path(), "the-plaintext")
            && files_contain(folder.path(), "k8s:enc:kms:v2:test:")
    );

    // Another server has to ask the plugin for the first one's seed, once.
    let (store, _encryption) = open(folder.path()).await;
    let before = plugin.state().decrypted;
    assert_eq!(read(&store, KEY).await.unwrap(), (PLAIN.to_owned(), false));
    assert_eq!(read(&store, "/registry/core/secrets/default/b").await.unwrap().0, PLAIN);
    assert_eq!(plugin.state().decrypted, before, "the index' key needed the same seed");
    assert_eq!(before, 1);
}

#[tokio::test]
async fn new_key_of_the_plugin_makes_values_stale() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Plugin::start(folder.path());
    configure(folder.path(), &plugin.provider());
    let (store, _encryption) = open(folder.path()).await;
    create(&store, KEY).await;
    plugin.state().key_id = "key-2".into();
    eventually(async || read(&store, KEY).await.unwrap().1).await;
    let revision = store.revision().await.unwrap();
    assert!(store.txn(Txn::replace(put(KEY, PLAIN), revision)).await.unwrap().succeeded);
    assert_eq!(read(&store, KEY).await.unwrap(), (PLAIN.to_owned(), false));
}

#[tokio::test]
async fn hanging_plugin_bounds_reads_and_stops_writes_after_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Plugin::start(folder.path());
    configure(folder.path(), &plugin.provider());
    let (store, encryption) = open(folder.path()).await;
    create(&store, KEY).await;
    plugin.state().mode = Mode::Hang;
    eventually(async || encryption.check().await.is_err()).await;
    assert_eq!(read(&store, KEY).await.unwrap().0, PLAIN, "its seed is in memory");
    let refused = async || {
        let written = store.txn(Txn::create(put("/registry/core/secrets/default/z", PLAIN))).await;
        match written {
            Err(error) => error.to_string().contains("expired"),
            Ok(_) => false,
        }
    };
    eventually(refused).await;
    let unhealthy = encryption.check().await.unwrap_err();
    assert!(
        unhealthy.starts_with("kms-provider-0:") && unhealthy.contains("DeadlineExceeded"),
        "{unhealthy}"
    );
    plugin.state().mode = Mode::Honest;
    eventually(async || store.txn(Txn::create(put("/registry/core/secrets/default/y", PLAIN))).await.is_ok())
        .await;
}

#[tokio::test]
async fn lying_plugins_are_not_used() {
    for (mode, part) in [
        (Mode::OtherKeyId, "the key ids of status and encrypt differ"),
        (Mode::NoEncryption, "did not encrypt the DEK"),
        (Mode::Sick, "got unexpected healthz status: not well"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let plugin = Plugin::start(folder.path());
        plugin.state().mode = mode;
        configure(folder.path(), &plugin.provider());
        let encryption =
            Encryption::load(&folder.path().join("encryption.yaml"), crate::quick()).await.unwrap();
        let unhealthy = encryption.check().await.unwrap_err();
        assert!(unhealthy.contains(part), "{mode:?}: {unhealthy}");
    }
}

#[tokio::test]
async fn wrong_seed_of_a_plugin_is_an_error_and_no_nonsense() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Plugin::start(folder.path());
    configure(folder.path(), &plugin.provider());
    let (store, encryption) = open(folder.path()).await;
    create(&store, KEY).await;
    store.close().await;
    drop(encryption);
    plugin.state().mode = Mode::WrongSeed;
    let started = Instant::now();
    let refused =
        tokio::time::timeout(Duration::from_secs(60), try_open(folder.path())).await.unwrap().unwrap_err();
    assert!(refused.contains("message authentication failed"), "{refused} after {:?}", started.elapsed());
}
