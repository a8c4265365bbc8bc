//! Watches, in memory and on disk.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::time::{Duration, Instant};

use orlop_device_client::api::*;
use support::{
    Calls, Fixture, MERGE_PATCH, Storage, end, event, gpu, labelled, meta, next_change, refused, version,
};
use tonic::Code;

fn from(version: &str) -> ListOptions {
    ListOptions { resource_version: Some(version.to_owned()), ..ListOptions::default() }
}

on_both_storages! {
    async fn watch_sends_initial_state_then_changes(f: Fixture) {
        let mut client = f.client.clone();
        client.create(gpu("a")).await.unwrap();
        let mut watch = client.watch(ListOptions::default()).await.unwrap();
        assert_eq!(next_change(&mut watch).await, "ADDED a");
        client.create(gpu("b")).await.unwrap();
        assert_eq!(next_change(&mut watch).await, "ADDED b");
        let patched = client.patch("a", MERGE_PATCH, r#"{"metadata":{"labels":{"x":"y"}}}"#, &[]).await.unwrap();
        let (kind, _, object) = event(&mut watch).await;
        assert_eq!((&*kind, object), ("MODIFIED", patched.clone()));
        client.delete("a").await.unwrap();
        let (kind, name, object) = event(&mut watch).await;
        assert_eq!((&*kind, &*name), ("DELETED", "a"));
        assert_eq!(object.spec, patched.spec, "the last state");
        assert_ne!(version(&object), version(&patched), "at the version of the deletion");
    }

    async fn watch_resumes_without_loss_or_duplicates(f: Fixture) {
        let mut client = f.client.clone();
        let list = client.list(ListOptions::default()).await.unwrap();
        let start = list.list_meta.unwrap().resource_version().to_owned();
        let mut versions = vec![];
        for number in 0..300 {
            // More than the 100 events that the public server buffers before it drops some.
            versions.push(version(&client.create(gpu(&format!("g{number:03}"))).await.unwrap()));
        }
        // In memory too: the public server refuses to watch from a version there.
        for (resume, skip) in [(start, 0), (versions[99].clone(), 100), (versions[298].clone(), 299)] {
            let mut watch = client.watch(from(&resume)).await.unwrap();
            for (number, expected) in versions.iter().enumerate().skip(skip) {
                let (kind, name, object) = event(&mut watch).await;
                assert_eq!((&*kind, &*name), ("ADDED", &*format!("g{number:03}")));
                assert_eq!(version(&object), *expected);
            }
            client.patch("g000", MERGE_PATCH, &format!(r#"{{"metadata":{{"labels":{{"n":"{skip}"}}}}}}"#), &[]).await.unwrap();
            assert_eq!(next_change(&mut watch).await, "MODIFIED g000");
        }
    }

    async fn slow_watcher_misses_nothing_and_blocks_nobody(f: Fixture) {
        let mut client = f.client.clone();
        client.create(gpu("a")).await.unwrap();
        let mut slow = client.watch(ListOptions::default()).await.unwrap();
        assert_eq!(next_change(&mut slow).await, "ADDED a");
        // More than its queue and the ring hold, less than the history that stays in memory.
        let value = "x".repeat(3_000);
        for number in 0..600 {
            let patch = format!(r#"{{"metadata":{{"annotations":{{"n":"{number}","pad":"{value}"}}}}}}"#);
            client.patch("a", MERGE_PATCH, &patch, &[]).await.unwrap();
        }
        for number in 0..600 {
            let (kind, _, object) = event(&mut slow).await;
            assert_eq!((&*kind, &*meta(&object).annotations["n"]), ("MODIFIED", &*number.to_string()));
        }
    }

    async fn selector_turns_changes_into_added_and_deleted(f: Fixture) {
        let mut client = f.client.clone();
        client.create(labelled("a", &[("tier", "gold")])).await.unwrap();
        client.create(labelled("b", &[("tier", "tin")])).await.unwrap();
        for selector in ["tier=gold", "tier in (gold)", "tier,tier!=tin"] {
            let opts = ListOptions { label_selector: Some(selector.into()), ..ListOptions::default() };
            let mut watch = client.watch(opts).await.unwrap();
            assert_eq!(next_change(&mut watch).await, "ADDED a", "{selector}");
            let relabel = |tier: &str| format!(r#"{{"metadata":{{"labels":{{"tier":"{tier}"}}}}}}"#);
            client.patch("b", MERGE_PATCH, &relabel("gold"), &[]).await.unwrap();
            assert_eq!(next_change(&mut watch).await, "ADDED b", "{selector}");
            client.patch("b", MERGE_PATCH, r#"{"spec":{"uuid":"GPU-7"}}"#, &[]).await.unwrap();
            assert_eq!(next_change(&mut watch).await, "MODIFIED b", "{selector}");
            client.patch("b", MERGE_PATCH, &relabel("tin"), &[]).await.unwrap();
            assert_eq!(next_change(&mut watch).await, "DELETED b", "{selector}");
            client.patch("b", MERGE_PATCH, r#"{"spec":{"uuid":"GPU-8"}}"#, &[]).await.unwrap();
            client.patch("a", MERGE_PATCH, &format!(r#"{{"metadata":{{"labels":{{"n":"{}"}}}}}}"#, selector.replace(|c: char| !c.is_ascii_alphanumeric(), "")), &[]).await.unwrap();
            assert_eq!(next_change(&mut watch).await, "MODIFIED a", "{selector}: b is not of its concern any more");
        }
    }

    async fn initial_events_end_with_a_marked_bookmark(f: Fixture) {
        let mut client = f.client.clone();
        client.create(gpu("a")).await.unwrap();
        let b = client.create(gpu("b")).await.unwrap();
        let opts = |initial: Option<bool>, how: &str| ListOptions {
            send_initial_events: initial,
            resource_version_match: Some(how.to_owned()).filter(|how| !how.is_empty()),
            allow_watch_bookmarks: Some(true),
            ..ListOptions::default()
        };
        let mut watch = client.watch(opts(Some(true), "NotOlderThan")).await.unwrap();
        assert_eq!(event(&mut watch).await.0, "ADDED");
        assert_eq!(event(&mut watch).await.0, "ADDED");
        let (kind, name, bookmark) = event(&mut watch).await;
        assert_eq!((&*kind, &*name), ("BOOKMARK", ""));
        assert_eq!(meta(&bookmark).annotations["k8s.io/initial-events-end"], "true");
        assert_eq!(version(&bookmark), version(&b));
        client.create(gpu("c")).await.unwrap();
        assert_eq!(next_change(&mut watch).await, "ADDED c");

        let mut watch = client.watch(opts(Some(false), "NotOlderThan")).await.unwrap();
        client.create(gpu("d")).await.unwrap();
        assert_eq!(next_change(&mut watch).await, "ADDED d", "nothing of before");
        refused(client.watch(opts(Some(true), "")).await, Code::InvalidArgument, "NotOlderThan");
        refused(client.watch(opts(Some(true), "Exact")).await, Code::InvalidArgument, "NotOlderThan");
        refused(client.watch(opts(None, "NotOlderThan")).await, Code::InvalidArgument, "sendInitialEvents");
    }

    async fn bookmarks_advance_with_unrelated_changes(f: Fixture) {
        let mut client = f.client.clone();
        let opts = ListOptions {
            label_selector: Some("tier=gold".into()),
            allow_watch_bookmarks: Some(true),
            ..ListOptions::default()
        };
        let mut watch = client.watch(opts).await.unwrap();
        let other = client.create(labelled("b", &[("tier", "tin")])).await.unwrap();
        loop {
            let (kind, _, bookmark) = event(&mut watch).await;
            assert_eq!(kind, "BOOKMARK");
            if version(&bookmark) == version(&other) {
                assert!(meta(&bookmark).annotations.is_empty());
                break;
            }
        }
        // Nothing happens, so nothing is told.
        assert!(tokio::time::timeout(Duration::from_millis(500), watch.message()).await.is_err());
    }

    async fn watch_ends_at_its_timeout(f: Fixture) {
        let mut client = f.client.clone();
        let opts = ListOptions { timeout_seconds: Some(1), ..ListOptions::default() };
        let began = Instant::now();
        let mut watch = client.watch(opts).await.unwrap();
        end(&mut watch).await.unwrap();
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(5), "{took:?}");
        let negative = ListOptions { timeout_seconds: Some(-1), ..ListOptions::default() };
        refused(client.watch(negative).await, Code::InvalidArgument, "timeoutSeconds");
    }

    async fn watch_is_restricted_to_a_namespace(f: Fixture) {
        let mut client = f.client.clone();
        let request = WatchGpusRequest { namespace: Some("one".into()), opts: None };
        let mut watch = client.watch_gpus(request).await.unwrap().into_inner();
        client.create(gpu("a")).await.unwrap();
        let mut inside = gpu("b");
        inside.object_meta.as_mut().unwrap().namespace = Some("one".into());
        client.create(inside).await.unwrap();
        assert_eq!(next_change(&mut watch).await, "ADDED b");
    }

    async fn watch_from_a_future_version_is_out_of_range(f: Fixture) {
        let mut client = f.client.clone();
        let made = client.create(gpu("a")).await.unwrap();
        let future = (version(&made).parse::<i64>().unwrap() + 1_000_000).to_string();
        refused(client.watch(from(&future)).await, Code::OutOfRange, "too large resource version");
        refused(client.watch(from("later")).await, Code::InvalidArgument, "resource version");
    }

    async fn shutdown_ends_watches_with_unavailable(f: Fixture) {
        let mut client = f.client.clone();
        let mut watch = client.watch(ListOptions::default()).await.unwrap();
        let began = Instant::now();
        let Fixture { server, folder: _folder, .. } = f;
        let (ended, ()) = tokio::join!(end(&mut watch), server.stop());
        refused(ended, Code::Unavailable, "shutting down");
        assert!(began.elapsed() < Duration::from_secs(4), "watches do not use up the grace");
    }
}

async fn compacted(storage: Storage) {
    let f = Fixture::start_with(storage, |config| config.retention = Duration::from_millis(300)).await;
    let mut client = f.client.clone();
    let old = version(&client.create(gpu("a")).await.unwrap());
    let mut open = client.watch(from(&old)).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut number = 0;
    loop {
        number += 1;
        let patch = format!(r#"{{"metadata":{{"labels":{{"n":"{number}"}}}}}}"#);
        client.patch("a", MERGE_PATCH, &patch, &[]).await.unwrap();
        assert_eq!(next_change(&mut open).await, "MODIFIED a", "an open watch is not affected");
        match client.watch(from(&old)).await {
            Err(status) => {
                refused(Err::<(), _>(status), Code::OutOfRange, "compacted");
                break;
            }
            Ok(_) => assert!(Instant::now() < deadline, "history is never forgotten"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let exact = ListOptions { resource_version_match: Some("Exact".into()), ..from(&old) };
    refused(client.list(exact).await, Code::OutOfRange, "compacted");
    assert_eq!(meta(&client.get("a").await.unwrap()).labels["n"], number.to_string());
}

#[tokio::test]
async fn watch_from_a_compacted_version_is_out_of_range_in_memory() {
    compacted(Storage::Memory).await;
}

#[tokio::test]
async fn watch_from_a_compacted_version_is_out_of_range_on_disk() {
    compacted(Storage::Disk).await;
}
