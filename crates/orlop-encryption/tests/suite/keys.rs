//! Keys from a file.

use orlop_store::{Filter, KeyRange, Put, Read, Requirement, RowEncoder, Txn, Watch};

use crate::{KEY, PLAIN, configure, create, files_contain, open, open_clear, put, read, secret, try_open};

fn aesgcm(keys: &[(&str, char)]) -> String {
    let keys: Vec<String> =
        keys.iter().map(|(name, letter)| format!("{{name: {name}, secret: {}}}", secret(*letter))).collect();
    format!("{{aesgcm: {{keys: [{}]}}}}", keys.join(", "))
}

fn by_label(value: &str) -> Read {
    let filter = Filter(vec![Requirement::equals("l:app", value)]);
    Read { filter, ..Read::new(KeyRange::prefix("/registry/core/secrets/")) }
}

#[tokio::test]
async fn value_and_terms_are_encrypted_in_the_file_and_clear_to_callers() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &aesgcm(&[("one", 'a')]));
    let (store, _) = open(folder.path()).await;
    let mut watch =
        store.watch(Watch::new(KeyRange::prefix("/registry/core/secrets/")).previous()).await.unwrap();
    create(&store, KEY).await;
    store.txn(Txn::create(put("/registry/core/pods/default/x", "clear-pod"))).await.unwrap();
    assert_eq!(read(&store, KEY).await.unwrap(), (PLAIN.to_owned(), false));
    assert_eq!(read(&store, "/registry/core/pods/default/x").await.unwrap().0, "clear-pod");
    assert_eq!(store.read(by_label("secret-label")).await.unwrap().kvs.len(), 1);
    assert_eq!(store.read(by_label("other")).await.unwrap().kvs.len(), 0);
    let batch = watch.next().await.unwrap();
    assert_eq!(batch.events().next().unwrap().event.kv.value, PLAIN);
    let revision = store.revision().await.unwrap();
    store.txn(Txn::remove(KEY, revision - 1)).await.unwrap();
    let batch = watch.next().await.unwrap();
    let deleted = batch.events().next().unwrap();
    let key = deleted.event.kv.key.clone();
    assert_eq!(deleted.event.previous.as_ref().unwrap().kv(&key).unwrap().value, PLAIN, "the last state");
    // A watch from the past reads the log.
    let mut past =
        store.watch(Watch::new(KeyRange::prefix("/registry/core/secrets/")).after(1)).await.unwrap();
    assert_eq!(past.next().await.unwrap().events().next().unwrap().event.kv.value, PLAIN);
    drop((watch, past));
    store.close().await;
    assert!(!files_contain(folder.path(), "the-plaintext") && files_contain(folder.path(), "clear-pod"));
    assert!(files_contain(folder.path(), "k8s:enc:aesgcm:v1:one:"));
    // The pod's label is in clear; the secret's is not beside it.
    assert!(files_contain(folder.path(), "hmac:"));
}

#[derive(Debug)]
struct Copying;

impl RowEncoder for Copying {
    fn append(&self, to: &mut bytes::BytesMut, value: &[u8], _: i64) -> bool {
        to.extend_from_slice(value);
        value.starts_with(b"{")
    }
}

#[tokio::test]
async fn encoded_pages_are_decoded_first() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &aesgcm(&[("one", 'a')]));
    let (store, _) = open(folder.path()).await;
    create(&store, KEY).await;
    let mut pages = store.pages(Read::new(KeyRange::prefix("/registry/core/secrets/"))).unwrap();
    let encoder: std::sync::Arc<dyn RowEncoder> = std::sync::Arc::new(Copying);
    let page = pages.next_encoded(&encoder).await.unwrap().unwrap();
    assert_eq!(page.bytes.unwrap(), PLAIN);
}

#[tokio::test]
async fn keys_rotate_and_stale_values_are_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    // From before encryption.
    let store = open_clear(folder.path()).await;
    create(&store, KEY).await;
    store.close().await;
    assert!(files_contain(folder.path(), "the-plaintext") && files_contain(folder.path(), "secret-label"));

    configure(folder.path(), &format!("{}, {{identity: {{}}}}", aesgcm(&[("one", 'a')])));
    let (store, _) = open(folder.path()).await;
    assert_eq!(read(&store, KEY).await.unwrap(), (PLAIN.to_owned(), true));
    assert_eq!(store.read(by_label("secret-label")).await.unwrap().kvs.len(), 1, "plain terms are found too");
    let revision = store.read(Read::new(KeyRange::key(KEY))).await.unwrap().kvs[0].revision;
    assert!(store.txn(Txn::replace(put(KEY, PLAIN), revision)).await.unwrap().succeeded);
    assert_eq!(read(&store, KEY).await.unwrap(), (PLAIN.to_owned(), false));
    assert_eq!(store.purge().await.unwrap(), Some(true));
    store.close().await;
    assert!(!files_contain(folder.path(), "the-plaintext") && !files_contain(folder.path(), "secret-label"));

    configure(folder.path(), &aesgcm(&[("two", 'b'), ("one", 'a')]));
    let (store, _) = open(folder.path()).await;
    assert_eq!(read(&store, KEY).await.unwrap(), (PLAIN.to_owned(), true));
    let revision = store.read(Read::new(KeyRange::key(KEY))).await.unwrap().kvs[0].revision;
    store.txn(Txn::replace(put(KEY, PLAIN), revision)).await.unwrap();
    assert_eq!(store.read(by_label("secret-label")).await.unwrap().kvs.len(), 1, "terms outlive keys");
    store.close().await;

    configure(folder.path(), &aesgcm(&[("two", 'b')]));
    let (store, _) = open(folder.path()).await;
    assert_eq!(read(&store, KEY).await.unwrap(), (PLAIN.to_owned(), false));
    store.close().await;
}

#[tokio::test]
async fn missing_and_wrong_keys_are_errors_that_name_the_object() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &aesgcm(&[("one", 'a')]));
    let (store, _) = open(folder.path()).await;
    create(&store, KEY).await;
    store.close().await;

    // The index' key cannot be opened either: the server does not start.
    configure(folder.path(), &aesgcm(&[("one", 'b')]));
    let refused = try_open(folder.path()).await.unwrap_err();
    assert!(refused.contains("message authentication failed"), "{refused}");

    configure(folder.path(), &aesgcm(&[("one", 'a')]));
    let (store, encryption) = open(folder.path()).await;
    create(&store, "/registry/core/secrets/default/b").await;
    // A configuration without the key of the index is not taken over, however often it is tried.
    for without in ["{identity: {}}".to_owned(), aesgcm(&[("two", 'b')])] {
        configure(folder.path(), &without);
        for _ in 0..2 {
            assert!(encryption.reload(&store).await.is_err(), "{without}");
            assert_eq!(read(&store, KEY).await.unwrap().0, PLAIN);
        }
    }
    configure(folder.path(), &aesgcm(&[("two", 'b'), ("one", 'a')]));
    assert!(encryption.reload(&store).await.unwrap());
    assert!(!encryption.reload(&store).await.unwrap(), "unchanged");
    // The key of the index is under the new key now, and the objects are not.
    configure(folder.path(), &aesgcm(&[("two", 'b')]));
    assert!(encryption.reload(&store).await.unwrap());
    let failed = read(&store, KEY).await.unwrap_err();
    assert_eq!(
        failed,
        format!(
            "unable to transform key {KEY:?}: no matching key was found for the provided AES transformer"
        )
    );
    let list =
        store.read(Read::new(KeyRange::prefix("/registry/core/secrets/"))).await.unwrap_err().to_string();
    assert!(list.contains(KEY), "{list}");
    configure(folder.path(), &aesgcm(&[("one", 'a'), ("two", 'b')]));
    assert!(encryption.reload(&store).await.unwrap());
    assert_eq!(read(&store, KEY).await.unwrap().0, PLAIN);
    configure(folder.path(), "{aesgcm: {keys: []}}");
    assert!(encryption.reload(&store).await.is_err());
    assert_eq!(read(&store, KEY).await.unwrap().0, PLAIN, "an invalid file changes nothing");
}

#[tokio::test]
async fn nothing_is_encrypted_before_its_terms_can_be_hidden() {
    const INDEX_KEY: &str = "/orlop/encryption/index-key";
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "{identity: {}}");
    let (store, encryption) = open(folder.path()).await;
    // Of another server, under a key that this configuration does not have.
    let foreign = Put::new(INDEX_KEY, "k8s:enc:aesgcm:v1:other:unreadable");
    assert!(store.txn(Txn::create(foreign)).await.unwrap().succeeded);
    configure(folder.path(), &aesgcm(&[("one", 'a')]));
    for _ in 0..2 {
        assert!(encryption.reload(&store).await.is_err(), "it is tried again");
    }
    let stored = store.read(Read::new(KeyRange::key(INDEX_KEY))).await.unwrap().kvs[0].revision;
    assert!(store.txn(Txn::remove(INDEX_KEY, stored)).await.unwrap().succeeded);
    assert!(encryption.reload(&store).await.unwrap());
    create(&store, KEY).await;
    assert_eq!(store.read(by_label("secret-label")).await.unwrap().kvs.len(), 1);
    store.close().await;
    assert!(files_contain(folder.path(), "k8s:enc:aesgcm:v1:one:"));
    assert!(!files_contain(folder.path(), "the-plaintext") && !files_contain(folder.path(), "secret-label"));
}
