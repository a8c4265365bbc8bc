//! Damage on the disk: it fails the keys it hit, and nothing else.

use orlop_store::{
    Config, Endpoint, Error, Filter, KeyRange, Op, Put, Read, Requirement, Select, Store, Terms, Txn, Watch,
};
use rusqlite::Connection;

use crate::{database::Database, shorthand::*};

/// Damages the newest version of a key: `change` is what is set in its row of a table.
fn damage(db: &Database, table: &str, key: &str, change: &str) {
    let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    let newest = format!("id = (SELECT id FROM live WHERE key = {})", db.bytes(&hex));
    db.sql(&match change {
        "" => format!("DELETE FROM {table} WHERE {newest}"),
        change => format!("UPDATE {table} SET {change} WHERE {newest}"),
    });
}

fn corrupt<T>(key: &'static str) -> Result<T, Error> {
    Err(Error::Corrupt { key: key.into() })
}

/// Three keys with terms, the one in the middle about to be damaged.
async fn three(db: &Database) -> Store {
    let store = db.open().await;
    for key in ["k/a", "k/b", "k/c"] {
        let terms = Terms::new([("app", "web")]);
        write(&store, [Op::Put(Put { terms, ..Put::new(key, "value") })]).await;
    }
    store
}

async fn damaged_value_fails_only_its_key(db: &Database) {
    let wrong = format!("value = {}", db.bytes("00ff"));
    for change in [&wrong, "value = substr(value, 1, 2)", "checksum = checksum + 1", ""] {
        let store = three(db).await;
        put(&store, "last", "so that the newest revision is not the one that is hit").await;
        damage(db, "log", "k/b", change);
        let one = |key: &'static str| store.read(Read::new(KeyRange::key(key)));
        assert_eq!(one("k/b").await, corrupt("k/b"), "{change}");
        for fine in ["k/a", "k/c"] {
            assert_eq!(pairs(&one(fine).await.unwrap()), [format!("{fine}=value")], "{change}");
        }
        let all = Read { count: true, ..Read::new(KeyRange::prefix("k/")) };
        assert_eq!(store.read(all.clone()).await, corrupt("k/b"), "a list says which key it is");
        let keys = store.read(Read { select: Select::Keys, ..all }).await.unwrap();
        assert_eq!((keys.kvs.len(), keys.count), (3, Some(3)), "who wants no values does not care");
        let removed = store.txn(Txn::remove("k/b", keys.kvs[1].revision)).await;
        assert_eq!(removed, corrupt("k/b"), "the value that is gone cannot be answered");
        delete(&store, "k/b").await;
        assert_eq!(list(&store, KeyRange::prefix("k/")).await, ["k/a=value", "k/c=value"]);
        put(&store, "k/b", "value").await;
        assert_eq!(list(&store, KeyRange::prefix("k/")).await.len(), 3, "and it can be written again");
        store.close().await;
    }
}

async fn damaged_value_can_be_overwritten(db: &Database) {
    let store = three(db).await;
    damage(db, "log", "k/b", &format!("value = {}", db.bytes("ff")));
    put(&store, "k/b", "healed").await;
    assert_eq!(list(&store, KeyRange::prefix("k/b")).await, ["k/b=healed"]);
    let past = list_at(&store, KeyRange::all(), 4).await;
    assert_eq!(past, corrupt("k/b"), "its past stays damaged");
    assert_eq!(list_at(&store, KeyRange::all(), 2).await.unwrap(), ["k/a=value"]);
}

async fn damaged_terms_fail_only_filtered_reads(db: &Database) {
    let store = three(db).await;
    damage(db, "live", "k/b", &format!("terms = {}", db.bytes("0000ff")));
    let filtered =
        |range| Read { filter: Filter(vec![Requirement::equals("app", "web")]), ..Read::new(range) };
    assert_eq!(store.read(filtered(KeyRange::prefix("k/"))).await, corrupt("k/b"));
    let found = store.read(filtered(KeyRange::starting_at("k/c"))).await.unwrap();
    assert_eq!(pairs(&found), ["k/c=value"]);
    assert_eq!(list(&store, KeyRange::all()).await.len(), 3);
    delete(&store, "k/b").await;
    let found = store.read(filtered(KeyRange::prefix("k/"))).await.unwrap();
    assert_eq!(pairs(&found), ["k/a=value", "k/c=value"]);
    put(&store, "k/b", "without terms").await;
    assert_eq!(store.read(filtered(KeyRange::prefix("k/"))).await.unwrap().kvs.len(), 2);
}

async fn watch_of_other_keys_skips_a_damaged_event(db: &Database) {
    let store = three(db).await;
    put(&store, "k/d", "value").await;
    damage(db, "log", "k/b", &format!("value = {}", db.bytes("ff")));
    // Opened anew, so that nothing is remembered.
    store.close().await;
    let store = db.open().await;
    let mut other = store.watch(Watch::new(KeyRange::starting_at("k/c")).after(1)).await.unwrap();
    assert_eq!(delivered_up_to(&mut other, 5).await.unwrap(), ["4: +k/c=value", "5: +k/d=value"]);
    let mut hit = store.watch(Watch::new(KeyRange::all()).after(1)).await.unwrap();
    assert_eq!(describe(&next(&mut hit).await.unwrap()), "2: +k/a=value");
    assert_eq!(next(&mut hit).await.map(|batch| describe(&batch)), corrupt("k/b"));
    put(&store, "k/b", "healed").await;
    let mut previous = store.watch(Watch::new(KeyRange::all()).previous().after(5)).await.unwrap();
    assert_eq!(next(&mut previous).await.map(|batch| describe(&batch)), corrupt("k/b"));
    let mut after = store.watch(Watch::new(KeyRange::all()).after(5)).await.unwrap();
    assert_eq!(delivered_up_to(&mut after, 6).await.unwrap(), ["6: ~k/b=healed"]);
}

async fn log_tail_continues_past_damage(db: &Database) {
    let store = three(db).await;
    let peer = db.open().await;
    let mut watcher = peer.watch(Watch::new(KeyRange::prefix("x/"))).await.unwrap();
    // The follower of `peer` may or may not have read the row when it is damaged; it must go on.
    put(&store, "k/b", "again").await;
    damage(db, "log", "k/b", &format!("value = {}", db.bytes("ff")));
    let revision = put(&store, "x/1", "value").await;
    assert_eq!(delivered_up_to(&mut watcher, revision).await.unwrap(), [format!("{revision}: +x/1=value")]);
}

async fn lease_with_a_damaged_key_expires(db: &Database) {
    let store = db.open().await;
    store.grant(Some(1), std::time::Duration::from_secs(600)).await.unwrap();
    for key in ["a", "b"] {
        let terms = Terms::new([("app", "web")]);
        write(&store, [Op::Put(Put { lease: 1, terms, ..Put::new(key, "value") })]).await;
    }
    damage(db, "live", "a", &format!("terms = {}", db.bytes("01")));
    damage(db, "log", "b", &format!("value = {}", db.bytes("01")));
    store.revoke(1).await.unwrap();
    assert_eq!(list(&store, KeyRange::all()).await, [""; 0]);
}

async fn newer_schema_is_refused_and_unchanged(db: &Database) {
    let store = db.open().await;
    put(&store, "a", "1").await;
    store.close().await;
    let version = |db: &Database| -> i64 {
        let connection = Connection::open(db.file()).unwrap();
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    };
    let known = version(db);
    Connection::open(db.file()).unwrap().pragma_update(None, "user_version", known + 1).unwrap();
    let refused = Store::open(db.config()).await.map(drop);
    assert_eq!(refused, Err(Error::NewerSchema { found: known + 1, known }));
    assert_eq!(version(db), known + 1);
    Connection::open(db.file()).unwrap().pragma_update(None, "user_version", known).unwrap();
    assert_eq!(list(&db.open().await, KeyRange::all()).await, ["a=1"]);
}

async fn file_that_is_no_database_is_refused_and_unchanged(db: &Database) {
    let text = "this is a letter to my mother, not a database ".repeat(100);
    std::fs::write(db.file(), &text).unwrap();
    let refused = Store::open(db.config()).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert_eq!(std::fs::read_to_string(db.file()).unwrap(), text);
    let nowhere = Config::new(Endpoint::Sqlite(db.beside("no/such/folder/store.db")));
    let refused = Store::open(nowhere).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
}

async fn in_memory_databases_are_separate(db: &Database) {
    let _ = db;
    let mut stores = Vec::new();
    for number in 0..5 {
        let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
        put(&store, format!("only in {number}"), "").await;
        stores.push(store);
    }
    for (number, store) in stores.iter().enumerate() {
        assert_eq!(list(store, KeyRange::all()).await, [format!("only in {number}=")]);
    }
}

on_durable_engines! {
    damaged_value_fails_only_its_key,
    damaged_value_can_be_overwritten,
    damaged_terms_fail_only_filtered_reads,
    watch_of_other_keys_skips_a_damaged_event,
    log_tail_continues_past_damage,
    lease_with_a_damaged_key_expires,
}

on_sqlite_files! {
    newer_schema_is_refused_and_unchanged,
    file_that_is_no_database_is_refused_and_unchanged,
    in_memory_databases_are_separate,
}
