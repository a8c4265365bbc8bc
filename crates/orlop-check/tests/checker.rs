//! Tests of the checker: each corrupts a valid history in one way and expects the violation to be detected.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use orlop_check::{
    Batch, Client, Entry, Failure, History, Operation, Outcome, Request, WatchRecord, WatchSpec, Workload,
    check,
};
use orlop_store::{
    Config, Endpoint, Error, Filter, KeyRange, Op, OpResult, Put, Read, ReadResult, Revision, Store, Txn,
    TxnResult,
};

/// A history of a real store, without compaction, in which the first watch has seen everything.
fn valid_history() -> History {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config { retention: None, ..Config::new(Endpoint::Memory) };
        let store: Arc<dyn Client> = Arc::new(Store::open(config).await.unwrap());
        let workload =
            Workload { operations: 80, compact_every: None, abandoned_percent: 0, ..Workload::new(42) };
        let mut history = workload.run(&[store]).await;
        // The one that watches everything from the start goes first.
        let everything = |watch: &WatchRecord| watch.spec.after == Some(1) && watch.spec.filter.is_empty();
        let batches = |watch: &WatchRecord| watch.entries.iter().filter(|(_, e)| e.batch().is_some()).count();
        history.watches.sort_by_key(|watch| {
            std::cmp::Reverse((everything(watch) && watch.spec.range == KeyRange::all(), batches(watch)))
        });
        check(&history).unwrap();
        history
    })
}

/// Corrupts a valid history and expects a violation whose description contains some words.
fn assert_detected(history: &History, break_it: impl FnOnce(&mut History), complaint: &str) {
    let mut broken = history.clone();
    break_it(&mut broken);
    let problem = check(&broken).expect_err(&format!("not noticed: {complaint}"));
    assert!(
        problem.contains(complaint),
        "expected {complaint:?}, was told {}",
        &problem[..problem.len().min(600)]
    );
}

fn writes(history: &mut History) -> Vec<&mut Operation> {
    let mut writes: Vec<_> = history
        .operations
        .iter_mut()
        .filter(|operation| {
            matches!(&operation.outcome, Outcome::Txn(result)
                if result.results.iter().any(|result| matches!(result, OpResult::Put(_))))
        })
        .collect();
    writes.sort_by_key(|operation| revision(operation));
    writes
}

fn first_read(history: &mut History, suits: impl Fn(&ReadResult) -> bool) -> &mut ReadResult {
    let mut reads = history.operations.iter_mut().filter_map(|operation| match &mut operation.outcome {
        Outcome::Read(read) => Some(read),
        _ => None,
    });
    reads.find(|read| suits(read)).unwrap()
}

fn revision(operation: &Operation) -> Revision {
    match &operation.outcome {
        Outcome::Txn(result) => result.revision,
        _ => 0,
    }
}

/// Removes progress entries of a watch, which would be reported instead of the corruption.
fn remove_progress(watch: &mut WatchRecord) {
    watch.entries.retain(|(_, entry)| !matches!(entry, Entry::Progress(_)));
}

fn batches(watch: &mut WatchRecord) -> Vec<usize> {
    let entries = watch.entries.iter().enumerate();
    entries.filter(|(_, (_, entry))| entry.batch().is_some()).map(|(at, _)| at).collect()
}

fn batch(watch: &mut WatchRecord, number: usize) -> &mut Batch {
    let at = batches(watch)[number];
    match &mut watch.entries[at].1 {
        Entry::Batch(batch) => batch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn corrupted_operations_are_detected() {
    let history = valid_history();
    assert_detected(
        &history,
        |h| {
            let lost = revision(writes(h)[50]);
            h.operations.retain(|o| revision(o) != lost);
        },
        "nothing asked for made",
    );
    assert_detected(
        &history,
        |h| {
            let copy = writes(h)[50].clone();
            h.operations.push(copy);
        },
        "two writes have one revision",
    );
    assert_detected(
        &history,
        |h| {
            // It claims to have been asked after the last one was answered.
            let end = h.operations.iter().map(|operation| operation.returned).max().unwrap();
            let write = &mut writes(h)[20];
            (write.invoked, write.returned) = (end + 1, end + 2);
        },
        "went back in time",
    );
    assert_detected(
        &history,
        |h| {
            let end = h.operations.iter().map(|operation| operation.returned).max().unwrap();
            let read = h
                .operations
                .iter_mut()
                .find(|o| matches!(&o.outcome, Outcome::Read(r) if r.revision < 30))
                .unwrap();
            (read.invoked, read.returned) = (end + 1, end + 2);
        },
        "a stale answer",
    );
    assert_detected(
        &history,
        |h| {
            let some = |read: &ReadResult| !read.kvs.is_empty();
            first_read(h, some).kvs.pop();
        },
        "the model answers",
    );
    assert_detected(
        &history,
        |h| {
            let read = first_read(h, |read| read.count.is_some());
            read.count = read.count.map(|count| count + 1);
        },
        "the model answers",
    );
    assert_detected(
        &history,
        |h| {
            for operation in &mut h.operations {
                if let (Request::Txn(_), Outcome::Txn(TxnResult { succeeded, .. })) =
                    (&operation.request, &mut operation.outcome)
                {
                    *succeeded = !*succeeded;
                    return;
                }
            }
        },
        "the model answers",
    );
    assert_detected(&history, |h| h.last += 1, "nothing asked for made");
    assert_detected(
        &history,
        |h| {
            let operation = writes(h).swap_remove(10);
            operation.outcome = Outcome::Refused(Error::Full("disk".into()));
        },
        "refused without reason",
    );
}

#[test]
fn corrupted_watches_are_detected() {
    let history = valid_history();
    assert_detected(
        &history,
        |h| {
            remove_progress(&mut h.watches[0]);
            let at = batches(&mut h.watches[0])[10];
            h.watches[0].entries.remove(at);
        },
        "were skipped",
    );
    assert_detected(
        &history,
        |h| {
            let at = batches(&mut h.watches[0])[10];
            let twice = h.watches[0].entries[at].clone();
            h.watches[0].entries.insert(at + 1, twice);
        },
        "came after",
    );
    assert_detected(
        &history,
        |h| {
            remove_progress(&mut h.watches[0]);
            let all = batches(&mut h.watches[0]);
            h.watches[0].entries.swap(all[10], all[11]);
        },
        "were skipped",
    );
    assert_detected(
        &history,
        |h| {
            batch(&mut h.watches[0], 5).events.pop();
        },
        "but came as",
    );
    assert_detected(&history, |h| batch(&mut h.watches[0], 5).events[0].kv.version += 1, "but came as");
    assert_detected(
        &history,
        |h| {
            let event = &mut batch(&mut h.watches[0], 5).events[0];
            event.created = !event.created;
        },
        "but came as",
    );
    assert_detected(
        &history,
        |h| {
            let event = &mut batch(&mut h.watches[0], 5).events[0];
            event.passes = event.passes.map(|(now, before)| (now, !before));
        },
        "but came as",
    );
    assert_detected(
        &history,
        |h| {
            for number in 0.. {
                let event = &mut batch(&mut h.watches[0], number).events[0];
                if event.previous.take().is_some() {
                    return;
                }
            }
        },
        "but came as",
    );
    assert_detected(
        &history,
        |h| {
            // Progress comes before the event that it covers.
            let at = batches(&mut h.watches[0])[10];
            let (moment, entry) = h.watches[0].entries[at].clone();
            let covered = entry.batch().unwrap().revision;
            h.watches[0].entries.insert(at, (moment, Entry::Progress(covered)));
        },
        "before the events of",
    );
    assert_detected(
        &history,
        |h| {
            let at = batches(&mut h.watches[0])[10];
            let moment = h.watches[0].entries[at].0;
            h.watches[0].entries.insert(at + 1, (moment, Entry::Progress(2)));
        },
        "progress went back",
    );
    assert_detected(
        &history,
        |h| {
            let last = h.last + 5;
            h.watches[0].entries.push((u64::MAX, Entry::Progress(last)));
        },
        "before it can have happened",
    );
    assert_detected(
        &history,
        |h| {
            let at = *batches(&mut h.watches[0]).last().unwrap();
            h.watches[0].entries.truncate(at);
        },
        "never came",
    );
    assert_detected(
        &history,
        |h| {
            let at = batches(&mut h.watches[0])[10];
            h.watches[0].entries.truncate(at);
            h.watches[0]
                .entries
                .push((u64::MAX, Entry::Ended(Failure::Refused(Error::Expired { compacted: 90 }))));
        },
        "was never asked for",
    );
}

/// One operation of a history written by hand.
fn operation(invoked: u64, request: Request, outcome: Outcome) -> Operation {
    Operation { client: 0, invoked, returned: invoked + 1, request, outcome }
}

fn put(invoked: u64, value: &str, revision: Option<Revision>) -> Operation {
    let txn = Txn::of([Op::Put(Put::new("a", value.to_owned()))]);
    let outcome = revision.map_or(Outcome::Unknown, |revision| {
        Outcome::Txn(TxnResult { revision, succeeded: true, results: vec![OpResult::Put(None)] })
    });
    operation(invoked, Request::Txn(txn), outcome)
}

fn by_hand(operations: Vec<Operation>, last: Revision) -> History {
    History { operations, watches: Vec::new(), last }
}

#[test]
fn unknown_operation_is_assigned_to_at_most_one_revision() {
    // Neither, one, and both of two writes that nobody heard of again have happened.
    let both = || vec![put(0, "lost 1", None), put(2, "lost 2", None)];
    for (state, last) in [(2, 2), (3, 3), (4, 4)] {
        let operations = both().into_iter().chain([put(4, "known", Some(state))]).collect();
        check(&by_hand(operations, last)).unwrap();
    }
    let operations = both().into_iter().chain([put(4, "known", Some(5))]).collect();
    assert!(check(&by_hand(operations, 5)).unwrap_err().contains("nothing asked for made"), "three of two");
    // One that was asked for later cannot have happened earlier.
    let operations = vec![put(0, "known", Some(3)), put(10, "lost", None)];
    assert!(check(&by_hand(operations, 3)).is_err());
}

#[test]
fn backtracking_finds_the_matching_unknown_operation() {
    // Of three unknown writes one happened; a later read says which, so the others must be given up.
    for (number, value) in ["lost 1", "lost 2", "lost 3"].into_iter().enumerate() {
        let mut operations: Vec<_> =
            (1..=3).map(|n| put(0, &format!("lost {n}"), None)).chain([put(0, "known", Some(3))]).collect();
        let mut model = orlop_check::Model::default();
        let Request::Txn(txn) = &operations[number].request else { panic!() };
        model.run(txn).unwrap();
        let read = Read { revision: Some(2), ..Read::new(KeyRange::all()) };
        let seen = model.read(&read, 3);
        // The model is at 2 and the answer was given at 3.
        let seen = seen.unwrap();
        assert_eq!(seen.kvs[0].value, value);
        operations.push(operation(10, Request::Read(read.clone()), Outcome::Read(seen.clone())));
        check(&by_hand(operations.clone(), 3)).unwrap();
        let mut wrong = seen;
        wrong.kvs[0].value = "never written".into();
        operations.push(operation(12, Request::Read(read), Outcome::Read(wrong)));
        assert!(check(&by_hand(operations, 3)).is_err());
    }
}

#[test]
fn reads_of_compacted_revisions_are_detected() {
    let read = |revision| Request::Read(Read { revision: Some(revision), ..Read::count(KeyRange::all()) });
    let counted = |count| Outcome::Read(ReadResult { revision: 3, count: Some(count), ..Default::default() });
    let start = || vec![put(0, "1", Some(2)), put(2, "2", Some(3))];
    let compacted = operation(4, Request::Compact(3), Outcome::Compacted);
    let expired = || Outcome::Refused(Error::Expired { compacted: 3 });
    let history = |more: Vec<Operation>| by_hand(start().into_iter().chain(more).collect(), 3);
    check(&history(vec![compacted.clone(), operation(6, read(2), expired())])).unwrap();
    check(&history(vec![compacted.clone(), operation(6, read(3), counted(1))])).unwrap();
    assert!(
        check(&history(vec![compacted, operation(6, read(2), counted(1))])).is_err(),
        "read what is gone"
    );
    assert!(check(&history(vec![operation(6, read(2), expired())])).is_err(), "expired without a compaction");
}

#[test]
fn watch_from_now_may_start_between_invocation_and_response() {
    let spec =
        WatchSpec { range: KeyRange::all(), filter: Filter::everything(), after: None, previous: false };
    // Asked for after revision 2 was answered, open before revision 4 was asked for.
    let operations = vec![put(0, "1", Some(2)), put(4, "2", Some(3)), put(10, "3", Some(4))];
    let watch = |first: Revision| {
        let mut model = orlop_check::Model::default();
        let mut entries = Vec::new();
        for operation in &operations {
            let Request::Txn(txn) = &operation.request else { panic!() };
            let revision = model.run(txn).unwrap().revision;
            let change = &model.commit(revision)[0];
            let event = orlop_check::Observed {
                kv: change.after.clone().unwrap().kv,
                deleted: false,
                created: change.before.is_none(),
                passes: None,
                previous: None,
            };
            if revision >= first {
                entries.push((20, Entry::Batch(Batch { revision, events: vec![event] })));
            }
        }
        let watch = WatchRecord { spec: spec.clone(), invoked: 3, opened: 8, entries, drained: true };
        check(&History { operations: operations.clone(), watches: vec![watch], last: 4 })
    };
    watch(3).unwrap();
    watch(4).unwrap();
    assert!(watch(2).is_err(), "what was over before it was asked for does not belong to it");
    assert!(watch(5).is_err(), "what was asked for after it was open does");
}
