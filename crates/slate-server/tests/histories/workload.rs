//! Concurrent clients that record what they did and saw.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use bson::{Bson, Document, doc};
use slate_client::{Client, Error, Options, protocol::ErrorCode};

use crate::checker::{Answer, Call, Operation};

/// Documents that the clients share. Few, so that they meet.
pub(crate) const DOCUMENTS: i32 = 4;
/// Concurrent clients.
const CLIENTS: u64 = 6;

/// Operations of every document, and the clock of their times.
#[derive(Debug, Default)]
pub(crate) struct History {
    clock: AtomicU64,
    values: AtomicI64,
    operations: Mutex<Vec<(i32, Operation)>>,
}

impl History {
    pub(crate) fn of(&self, document: i32) -> Vec<Operation> {
        let operations = self.operations.lock().expect("the history");
        operations.iter().filter(|(other, _)| *other == document).map(|(_, operation)| *operation).collect()
    }

    /// Lets clients work until `stop` is set, or each has done `operations`, or its connection breaks.
    pub(crate) async fn record(
        self: &Arc<Self>,
        address: &str,
        seed: u64,
        operations: usize,
        stop: &Arc<AtomicBool>,
    ) {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let options =
                    Options { connections: 1, timeout: Duration::from_secs(60), ..Options::new(address) };
                let (history, stop) = (Arc::clone(self), Arc::clone(stop));
                let mut random = Random(seed * 1000 + number + 1);
                tokio::spawn(async move {
                    let client = Client::new(options);
                    for _ in 0..operations {
                        if stop.load(Ordering::Relaxed) || !history.run_one(&client, &mut random).await {
                            return;
                        }
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.expect("a client");
        }
    }

    /// Runs one operation. Returns false if the connection broke.
    async fn run_one(&self, client: &Client, random: &mut Random) -> bool {
        let id = i32::try_from(random.below(DOCUMENTS as u64)).expect("small");
        let value = self.values.fetch_add(1, Ordering::Relaxed);
        // A value that somebody may have written lately.
        let recent = value - i64::try_from(random.below(12)).expect("small");
        let (call, by_index) = match random.below(10) {
            0..2 => (Call::Read, false),
            2..4 => (Call::Read, true),
            4 => (Call::Has(recent), true),
            5..7 => (Call::Put(value), false),
            7 => (Call::Exchange(recent, value), false),
            8 => (Call::Insert(value), false),
            _ => (Call::Delete, false),
        };
        let invoked = self.clock.fetch_add(1, Ordering::SeqCst);
        let answer = send(client, id, call, by_index).await;
        let returned = match answer {
            Answer::Unknown => u64::MAX,
            _ => self.clock.fetch_add(1, Ordering::SeqCst),
        };
        let operation = Operation { call, answer, invoked, returned };
        self.operations.lock().expect("the history").push((id, operation));
        answer != Answer::Unknown
    }
}

async fn send(client: &Client, id: i32, call: Call, by_index: bool) -> Answer {
    let document = |value: i64| doc! { "_id": id, "k": id, "v": value };
    let answered = match call {
        Call::Read if by_index => client.find("c", doc! { "k": id }).await.map(|found| value_of(&found)),
        Call::Read => client.find_by_id("c", Bson::Int32(id)).await.map(|found| value_of(found.as_slice())),
        Call::Has(value) => {
            client.count("c", &doc! { "k": id, "v": value }).await.map(|count| Answer::Done(count == 1))
        }
        Call::Put(value) => {
            let put = client.replace_one("c", &doc! { "_id": id }, &document(value), true).await;
            put.map(|_| Answer::Done(true))
        }
        Call::Insert(value) => match client.insert("c", &document(value)).await {
            Err(error) if error.code() == Some(ErrorCode::DuplicateKey) => Ok(Answer::Done(false)),
            inserted => inserted.map(|_| Answer::Done(true)),
        },
        Call::Exchange(old, new) => {
            let (filter, update) = (doc! { "_id": id, "v": old }, doc! { "$set": { "v": new } });
            let updated = client.update_one("c", &filter, &update, false).await;
            updated.map(|updated| Answer::Done(updated.matched == 1))
        }
        Call::Delete => {
            client.delete_one("c", &doc! { "_id": id }).await.map(|deleted| Answer::Done(deleted == 1))
        }
    };
    match answered {
        Ok(answer) => answer,
        Err(error) => {
            assert!(matches!(error, Error::Connection { .. }), "{call:?}: {error}");
            Answer::Unknown
        }
    }
}

fn value_of(found: &[Document]) -> Answer {
    assert!(found.len() <= 1, "a document is found once: {found:?}");
    Answer::Value(found.first().map(|document| document.get_i64("v").expect("a value")))
}

/// A small generator (xorshift), so that a seed repeats a run.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
