//! Reads at a past revision, over keys with long and broken lives.

use std::collections::BTreeMap;

use orlop_store::{Filter, KeyRange, KeyValue, Put, Read, Requirement, Revision, Select, Store, Terms, Txn};

use crate::{database::Database, shorthand::*};

type Keys = BTreeMap<String, KeyValue>;

/// Model of the store at each revision.
struct Model {
    now: Keys,
    then: BTreeMap<Revision, Keys>,
    random: u64,
}

impl Model {
    fn new() -> Self {
        Self { now: Keys::new(), then: BTreeMap::new(), random: 1 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below
    }

    /// Writes to one key of four, or deletes it, unless it is the first.
    async fn step(&mut self, store: &Store) {
        let key = ["a", "b", "c", "d"][self.random(4) as usize].to_owned();
        let revision = if key != "a" && self.now.contains_key(&key) && self.random(8) == 0 {
            self.now.remove(&key);
            write(store, [delete_op(KeyRange::key(key))]).await
        } else {
            let value = self.random(1000).to_string();
            let terms = parity(&value);
            let put = Put { terms, ..Put::new(key.clone(), value.clone()) };
            let revision = store.txn(Txn::of([orlop_store::Op::Put(put)])).await.unwrap().revision;
            let (version, create_revision) =
                self.now.get(&key).map_or((1, revision), |kv| (kv.version + 1, kv.create_revision));
            let (key, value) = (key.into(), value.into());
            let kv = KeyValue { key, value, revision, version, create_revision, lease: 0, stale: false };
            self.now.insert(String::from_utf8(kv.key.to_vec()).unwrap(), kv);
            revision
        };
        self.then.insert(revision, self.now.clone());
    }

    /// Compares every revision from the oldest readable one on.
    async fn compare(&self, store: &Store, oldest: Revision) {
        let odd = Filter(vec![Requirement::In("parity".into(), vec!["odd".into()])]);
        for (revision, keys) in self.then.range(oldest..) {
            let all = Read { revision: Some(*revision), count: true, ..Read::new(KeyRange::all()) };
            let read = store.read(all.clone()).await.unwrap();
            assert_eq!(read.kvs, keys.values().cloned().collect::<Vec<_>>(), "at {revision}");
            assert_eq!(read.count, Some(keys.len() as u64), "at {revision}");
            let counted = store.read(Read { select: Select::Nothing, ..all.clone() }).await.unwrap();
            assert_eq!((counted.count, counted.kvs.len()), (Some(keys.len() as u64), 0), "at {revision}");
            let first = store.read(Read { limit: 2, ..all.clone() }).await.unwrap();
            assert_eq!(first.kvs, keys.values().take(2).cloned().collect::<Vec<_>>(), "at {revision}");
            assert_eq!(first.more, keys.len() > 2, "at {revision}");
            let filtered = store.read(Read { filter: odd.clone(), limit: 1, ..all }).await.unwrap();
            let found: Vec<_> = keys.values().filter(|kv| is_odd(&kv.value)).cloned().collect();
            assert_eq!(filtered.count, Some(found.len() as u64), "at {revision}");
            assert_eq!(filtered.kvs, found.into_iter().take(1).collect::<Vec<_>>(), "at {revision}");
        }
    }
}

fn is_odd(value: &[u8]) -> bool {
    value.last().is_some_and(|digit| digit % 2 == 1)
}

fn parity(value: &str) -> Terms {
    Terms::new([("parity", if is_odd(value.as_bytes()) { "odd" } else { "even" })])
}

async fn every_revision_since_the_compacted_one_can_be_read(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut model = Model::new();
    for _ in 0..700 {
        model.step(&store).await;
    }
    assert!(model.now["a"].version > 128, "a life that is long enough");
    model.compare(&peer, 0).await;
    let compacted = *model.then.keys().nth(400).unwrap();
    compact(&store, compacted).await;
    for _ in 0..100 {
        model.step(&store).await;
    }
    model.compare(&peer, compacted).await;
    assert!(is_expired(&list_at(&peer, KeyRange::all(), compacted - 1).await));
}

on_every_engine! {
    every_revision_since_the_compacted_one_can_be_read,
}
