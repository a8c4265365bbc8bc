//! Watches: ordered, unique, reliable, atomic, resumable, and honest about their progress.

use std::time::Duration;

use orlop_store::{Filter, KeyRange, Op, Put, Requirement, Store, Terms, Watch, Watcher};
use tokio::time::timeout;

use crate::{database::Database, shorthand::*};

async fn watch(store: &Store, watch: Watch) -> Watcher {
    store.watch(watch).await.unwrap()
}

fn all() -> Watch {
    Watch::new(KeyRange::all())
}

async fn events_are_ordered_unique_and_typed(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "a", "before").await;
    let mut watcher = watch(&peer, all()).await;
    put(&store, "a", "1").await;
    put(&store, "b", "2").await;
    put(&store, "a", "3").await;
    delete(&store, "a").await;
    put(&store, "a", "4").await;
    let delivered = delivered_up_to(&mut watcher, 7).await.unwrap();
    assert_eq!(delivered, ["3: ~a=1", "4: +b=2", "5: ~a=3", "6: -a", "7: +a=4"]);
}

async fn watch_from_any_revision_delivers_exactly_later_events(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut expected = Vec::new();
    for number in 0..10 {
        let revision = put(&store, format!("k{number}"), "v").await;
        expected.push(format!("{revision}: +k{number}=v"));
    }
    for after in 0..=11 {
        let mut watcher = watch(&peer, all().after(after)).await;
        let delivered = delivered_up_to(&mut watcher, 11).await.unwrap();
        assert_eq!(delivered, expected[(after as usize).saturating_sub(1)..], "after {after}");
    }
}

async fn watch_from_a_future_revision_waits(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "a", "1").await;
    let mut watcher = watch(&peer, all().after(5)).await;
    assert!(watcher.progress() <= 2, "what has not happened must not be announced");
    for number in 3..=7 {
        put(&store, "a", format!("{number}")).await;
    }
    assert_eq!(delivered_up_to(&mut watcher, 7).await.unwrap(), ["6: ~a=6", "7: ~a=7"]);
}

async fn watch_delivers_transactions_whole(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut live = watch(&peer, all()).await;
    for round in 0..5 {
        write(&store, (0..300).map(|n| put_op(format!("{n:03}"), format!("{round}")))).await;
    }
    let mut late = watch(&peer, all().after(1)).await;
    for revision in 2..=6 {
        for watcher in [&mut live, &mut late] {
            let batch = next(watcher).await.unwrap();
            assert_eq!((batch.revision(), batch.events().count()), (revision, 300));
        }
    }
}

async fn watch_delivers_only_its_range(db: &Database) {
    let (store, peer) = db.pair().await;
    let ranges = [
        (KeyRange::key("/a"), "2: +/a=x"),
        (KeyRange::prefix("/a"), "2: +/a=x +/a/1=x +/ab=x"),
        (KeyRange::prefix("/a/"), "2: +/a/1=x"),
        (KeyRange::between("/a/", "/b"), "2: +/a/1=x +/ab=x"),
        (KeyRange::starting_at("/ab"), "2: +/ab=x +/b=x"),
        (KeyRange::all(), "2: +/a=x +/a/1=x +/ab=x +/b=x"),
    ];
    let mut watchers = Vec::new();
    for (range, expected) in ranges {
        watchers.push((watch(&peer, Watch::new(range.clone())).await, expected));
        watchers.push((watch(&peer, Watch::new(range).after(1)).await, expected));
    }
    let mut nothing = watch(&peer, Watch::new(KeyRange::prefix("/c"))).await;
    write(&store, ["/a", "/a/1", "/ab", "/b"].map(|key| put_op(key, "x"))).await;
    for (watcher, expected) in &mut watchers {
        assert_eq!(delivered_up_to(watcher, 2).await.unwrap(), [*expected]);
    }
    assert_eq!(delivered_up_to(&mut nothing, 2).await.unwrap(), [""; 0]);
}

async fn watch_loads_previous_versions_on_request(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "a", "1").await;
    let mut live = watch(&peer, all().previous().after(2)).await;
    put(&store, "a", "2").await;
    delete(&store, "a").await;
    put(&store, "a", "3").await;
    let expected = ["3: ~a=2(1)", "4: -a(2)", "5: +a=3"];
    assert_eq!(delivered_up_to(&mut live, 5).await.unwrap(), expected);
    let mut late = watch(&peer, all().previous().after(2)).await;
    let batch = next(&mut late).await.unwrap();
    let event = batch.events().next().unwrap().event;
    let previous = event.previous.as_ref().unwrap().kv(&event.kv.key).unwrap();
    assert_eq!((previous.create_revision, previous.revision, previous.version), (2, 2, 1));
    assert_eq!(delivered_up_to(&mut late, 5).await.unwrap(), expected[1..]);
}

async fn filtered_watch_reports_entering_and_leaving(db: &Database) {
    let (store, peer) = db.pair().await;
    let filter = Filter(vec![Requirement::equals("app", "web")]);
    let filtered = all().filter(filter).previous();
    let mut live = watch(&peer, filtered.clone()).await;
    let colored = |value: &'static str, app: &'static str| {
        Op::Put(Put { terms: Terms::new([("app", app)]), ..Put::new("k", value) })
    };
    write(&store, [colored("1", "db")]).await; // outside
    write(&store, [colored("2", "web")]).await; // enters
    write(&store, [colored("3", "web")]).await; // stays
    write(&store, [colored("4", "db")]).await; // leaves
    write(&store, [colored("5", "db")]).await; // outside
    write(&store, [colored("6", "web")]).await; // enters
    delete(&store, "k").await; // deleted inside
    write(&store, [colored("8", "db")]).await; // created outside
    delete(&store, "k").await; // deleted outside
    put(&store, "other", "x").await;
    let mut late = watch(&peer, filtered.after(1)).await;
    for watcher in [&mut live, &mut late] {
        let mut seen = Vec::new();
        for _ in 0..5 {
            let batch = next(watcher).await.unwrap();
            let [event] = batch.events().collect::<Vec<_>>()[..] else { panic!("{batch:?}") };
            seen.push((batch.revision(), event.matched_before, event.matches, event.event.deleted));
        }
        let expected = [
            (3, false, true, false),
            (4, true, true, false),
            (5, true, false, false),
            (7, false, true, false),
            (8, true, false, true),
        ];
        assert_eq!(seen, expected);
        assert_eq!(delivered_up_to(watcher, 11).await.unwrap(), [""; 0]);
    }
}

async fn watch_resumes_without_gap(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut delivered = Vec::new();
    let mut position = 1;
    for round in 0..5 {
        let mut watcher = watch(&peer, all().after(position)).await;
        for number in 0..3 {
            put(&store, format!("{round}{number}"), "").await;
        }
        // Two are taken, the rest is left for the next watch.
        for _ in 0..2 {
            let batch = next(&mut watcher).await.unwrap();
            position = batch.revision();
            delivered.push(position);
        }
    }
    let mut last = watch(&peer, all().after(position)).await;
    delivered_up_to(&mut last, 16).await.unwrap();
    assert_eq!(delivered, (2..=11).collect::<Vec<_>>());
    assert_eq!(last.progress(), 16);
}

async fn progress_advances_past_unmatched_events(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut quiet = watch(&peer, Watch::new(KeyRange::prefix("quiet/"))).await;
    for _ in 0..20 {
        put(&store, "loud", "x").await;
    }
    assert_eq!(delivered_up_to(&mut quiet, 21).await.unwrap(), [""; 0]);
    assert_eq!(quiet.progress(), 21);
}

async fn progress_is_consistent_with_delivered_events(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut watcher = watch(&peer, Watch::new(KeyRange::prefix("k/")).after(1)).await;
    let writer = tokio::spawn(async move {
        for number in 0..200 {
            put(&store, if number % 3 == 0 { "k/1" } else { "other" }, "x").await;
        }
    });
    let (mut delivered, mut newest) = (1, 1);
    while newest < 201 {
        let progress = watcher.progress();
        assert!(progress >= newest, "progress went back from {newest} to {progress}");
        newest = progress;
        if let Ok(batch) = timeout(Duration::from_micros(500), watcher.next()).await {
            let revision = batch.unwrap().revision();
            assert!(revision > newest, "{revision} came after progress {newest}");
            // Every third write from the first one, at revision 2, concerns the watch.
            assert_eq!(revision, if delivered == 1 { 2 } else { delivered + 3 });
            delivered = revision;
            assert!(watcher.progress() >= delivered);
        }
    }
    writer.await.unwrap();
    assert_eq!(delivered, 200);
}

async fn next_is_cancel_safe(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut watcher = watch(&peer, all().previous()).await;
    let writer = tokio::spawn(async move {
        for number in 0..100 {
            put(&store, "a", format!("{number}")).await;
        }
    });
    let mut revisions = Vec::new();
    while revisions.len() < 100 {
        if let Ok(batch) = timeout(Duration::from_micros(50), watcher.next()).await {
            revisions.push(batch.unwrap().revision());
        }
    }
    writer.await.unwrap();
    assert_eq!(revisions, (2..=101).collect::<Vec<_>>());
}

async fn ending_a_watch_does_not_affect_others(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut kept = watch(&peer, Watch::new(KeyRange::prefix("k"))).await;
    let dropped = watch(&peer, Watch::new(KeyRange::prefix("k"))).await;
    let key = watch(&peer, Watch::new(KeyRange::key("k1"))).await;
    put(&store, "k1", "1").await;
    drop((dropped, key));
    put(&store, "k1", "2").await;
    assert_eq!(delivered_up_to(&mut kept, 3).await.unwrap(), ["2: +k1=1", "3: ~k1=2"]);
}

async fn watch_from_now_starts_after_acknowledged_writes(db: &Database) {
    let (store, peer) = db.pair().await;
    for number in 0..30 {
        let revision = put(&store, "a", format!("{number}")).await;
        let mut watcher = watch(&peer, all()).await;
        let after = put(&store, "b", format!("{number}")).await;
        let delivered = delivered_up_to(&mut watcher, after).await.unwrap();
        let sign = if number == 0 { '+' } else { '~' };
        assert_eq!(delivered, [format!("{}: {sign}b={number}", revision + 1)]);
    }
}

on_every_engine! {
    events_are_ordered_unique_and_typed,
    watch_from_any_revision_delivers_exactly_later_events,
    watch_from_a_future_revision_waits,
    watch_delivers_transactions_whole,
    watch_delivers_only_its_range,
    watch_loads_previous_versions_on_request,
    filtered_watch_reports_entering_and_leaving,
    watch_resumes_without_gap,
    progress_advances_past_unmatched_events,
    progress_is_consistent_with_delivered_events,
    next_is_cancel_safe,
    ending_a_watch_does_not_affect_others,
    watch_from_now_starts_after_acknowledged_writes,
}
