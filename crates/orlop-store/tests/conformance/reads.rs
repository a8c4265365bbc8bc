//! Reads: one snapshot, sorted by key, at any revision that is kept.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use orlop_store::{
    EncodedPage, Error, Filter, KeyRange, Op, Put, Read, Requirement, Revision, RowEncoder, Select, Store,
    Terms,
};

use crate::{database::Database, shorthand::*};

/// Writes each key with its own name as value.
async fn fill(store: &Store, keys: &[&str]) {
    for key in keys {
        put(store, (*key).to_owned(), (*key).to_owned()).await;
    }
}

async fn ranges_are_sorted_by_key(db: &Database) {
    let (store, peer) = db.pair().await;
    fill(&store, &["c", "a", "e", "b", "d"]).await;
    assert_eq!(list(&peer, KeyRange::all()).await, ["a=a", "b=b", "c=c", "d=d", "e=e"]);
    assert_eq!(list(&peer, KeyRange::between("b", "d")).await, ["b=b", "c=c"]);
    assert_eq!(list(&peer, KeyRange::starting_at("d")).await, ["d=d", "e=e"]);
    assert_eq!(list(&peer, KeyRange::key("c")).await, ["c=c"]);
}

async fn prefix_read_excludes_neighbours(db: &Database) {
    let (store, peer) = db.pair().await;
    fill(&store, &["/foo", "/foo/", "/foo/a", "/foo/b", "/foobar", "/foobar/c", "/foo0"]).await;
    assert_eq!(
        list(&peer, KeyRange::prefix("/foo/")).await,
        ["/foo/=/foo/", "/foo/a=/foo/a", "/foo/b=/foo/b"]
    );
    assert_eq!(list(&peer, KeyRange::key("/foo")).await, ["/foo=/foo"]);
    assert_eq!(list(&peer, KeyRange::prefix("/foo")).await.len(), 7);
    assert_eq!(list(&peer, KeyRange::prefix("/none/")).await, [""; 0]);
}

async fn empty_range_returns_the_revision(db: &Database) {
    let (store, peer) = db.pair().await;
    fill(&store, &["a", "b"]).await;
    for range in [KeyRange::between("b", "a"), KeyRange::between("a", "a"), KeyRange::prefix("zz")] {
        let read = peer.read(Read { count: true, ..Read::new(range.clone()) }).await.unwrap();
        assert_eq!(
            (read.revision, read.kvs.len(), read.count, read.more),
            (3, 0, Some(0), false),
            "{range:?}"
        );
    }
}

async fn keys_are_bytes_in_byte_order(db: &Database) {
    let (store, peer) = db.pair().await;
    let keys: [&[u8]; 9] =
        [b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"a\0b", b"a\xff", b"\xfe\xff", b"\xff\xff\xff"];
    for key in keys.iter().rev() {
        put(&store, Bytes::from_static(key), Bytes::from_static(key)).await;
    }
    let all = peer.read(Read { count: true, ..Read::new(KeyRange::all()) }).await.unwrap();
    assert_eq!(all.kvs.iter().map(|kv| &kv.key[..]).collect::<Vec<_>>(), keys);
    assert_eq!(all.count, Some(9));
    for key in keys {
        let kv = get(&peer, Bytes::from_static(key)).await.unwrap();
        assert_eq!(kv.value, kv.key);
    }
    assert_eq!(list(&peer, KeyRange::prefix("a")).await.len(), 4);
    assert_eq!(list(&peer, KeyRange::prefix(vec![b'a', 0])).await.len(), 2);
    assert_eq!(list(&peer, KeyRange::prefix(vec![0xff])).await.len(), 1);
    assert_eq!(list(&peer, KeyRange::prefix(vec![0xff, 0xff, 0xff, 0xff])).await.len(), 0);
    assert_eq!(list(&peer, KeyRange::starting_at(vec![0xfe])).await.len(), 2);
    assert_eq!(list(&peer, KeyRange::between(vec![0], vec![0, 1])).await.len(), 2);
}

async fn values_are_arbitrary_bytes(db: &Database) {
    let (store, peer) = db.pair().await;
    let large: Bytes = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>().into();
    put(&store, "empty", "").await;
    put(&store, "zeros", vec![0; 5]).await;
    put(&store, "large", large.clone()).await;
    assert_eq!(get(&peer, "empty").await.unwrap().value, "");
    assert_eq!(get(&peer, "zeros").await.unwrap().value, vec![0; 5]);
    assert_eq!(get(&peer, "large").await.unwrap().value, large);
}

async fn limited_read_sets_more_and_counts_all(db: &Database) {
    let (store, peer) = db.pair().await;
    fill(&store, &["k/1", "k/2", "k/3", "k/4", "l"]).await;
    for (limit, kept, more) in [(0, 4, false), (1, 1, true), (3, 3, true), (4, 4, false), (100, 4, false)] {
        let read = Read { limit, count: true, ..Read::new(KeyRange::prefix("k/")) };
        let page = peer.read(read).await.unwrap();
        assert_eq!((page.kvs.len(), page.more, page.count), (kept, more, Some(4)), "limit {limit}");
    }
    let page = peer.read(Read { limit: 2, ..Read::new(KeyRange::prefix("k/")) }).await.unwrap();
    assert_eq!((page.count, page.more), (None, true), "only who asks is counted for");
}

async fn keys_only_read_omits_values(db: &Database) {
    let (store, peer) = db.pair().await;
    fill(&store, &["a", "b"]).await;
    put(&store, "a", "again").await;
    for revision in [None, Some(3), Some(4)] {
        let read = Read { select: Select::Keys, revision, ..Read::new(KeyRange::all()) };
        let keys = peer.read(read).await.unwrap();
        assert!(keys.kvs.iter().all(|kv| kv.value.is_empty()));
        let expected =
            if revision == Some(3) { vec![(2, 2, 1), (3, 3, 1)] } else { vec![(2, 4, 2), (3, 3, 1)] };
        let found: Vec<_> = keys.kvs.iter().map(|kv| (kv.create_revision, kv.revision, kv.version)).collect();
        assert_eq!(found, expected, "at {revision:?}");
    }
}

async fn count_only_read_returns_no_keys(db: &Database) {
    let (store, peer) = db.pair().await;
    fill(&store, &["a", "b", "c"]).await;
    delete(&store, "b").await;
    for (revision, count) in [(None, 2), (Some(2), 1), (Some(4), 3), (Some(5), 2)] {
        let read = Read { revision, ..Read::count(KeyRange::all()) };
        let counted = peer.read(read).await.unwrap();
        assert_eq!((counted.count, counted.kvs.len()), (Some(count), 0), "at {revision:?}");
    }
}

async fn past_revisions_read_as_they_were(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut expected = vec![vec![]];
    let mut state = std::collections::BTreeMap::new();
    for step in 0..40_usize {
        let key = format!("k{}", step * 7 % 5);
        if step % 4 == 3 && state.remove(&key).is_some() {
            delete(&store, key).await;
        } else {
            put(&store, key.clone(), format!("{step}")).await;
            state.insert(key, step);
        }
        expected.push(state.iter().map(|(key, step)| format!("{key}={step}")).collect::<Vec<_>>());
    }
    for (at, expected) in expected.iter().enumerate() {
        let revision = Some(at as i64 + 1);
        let read = peer.read(Read { revision, count: true, ..Read::new(KeyRange::all()) }).await.unwrap();
        assert_eq!((&pairs(&read), read.count), (expected, Some(expected.len() as u64)), "at {revision:?}");
        assert_eq!(read.revision, 41, "the answer says how new the store is, not what was asked");
        let limited = Read { revision, limit: 1, ..Read::new(KeyRange::all()) };
        let limited = peer.read(limited).await.unwrap();
        assert_eq!(pairs(&limited), expected[..expected.len().min(1)]);
        assert_eq!(limited.more, expected.len() > 1);
    }
}

async fn future_revisions_cannot_be_read(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "a", "1").await;
    assert_eq!(list_at(&peer, KeyRange::all(), 2).await.unwrap(), ["a=1"]);
    let future = list_at(&peer, KeyRange::all(), 3).await;
    assert_eq!(future, Err(Error::FutureRevision { requested: 3, current: 2 }));
}

async fn pages_continue_at_the_revision_of_the_first(db: &Database) {
    let (store, peer) = db.pair().await;
    fill(&store, &["k/1", "k/2", "k/3", "k/4", "k/5"]).await;
    let read = Read { limit: 2, count: true, ..Read::new(KeyRange::prefix("k/")) };
    let mut page = peer.read(read.clone()).await.unwrap();
    let revision = page.revision;
    let mut seen = pairs(&page);
    let mut counts = vec![page.count];
    // What happens meanwhile must not be seen: a creation, a deletion and an update ahead of the reader.
    put(&store, "k/35", "new").await;
    delete(&store, "k/4").await;
    put(&store, "k/5", "changed").await;
    while page.more {
        let range = read.range.after(&page.kvs.last().unwrap().key);
        page = peer.read(Read { range, revision: Some(revision), ..read.clone() }).await.unwrap();
        seen.extend(pairs(&page));
        counts.push(page.count);
    }
    assert_eq!(seen, ["k/1=k/1", "k/2=k/2", "k/3=k/3", "k/4=k/4", "k/5=k/5"]);
    assert_eq!(counts, [Some(5), Some(3), Some(1)], "what is left, with every page");
}

async fn paged_read_is_one_snapshot(db: &Database) {
    let (store, peer) = db.pair().await;
    for chunk in (0..10_000).collect::<Vec<_>>().chunks(1000) {
        write(&store, chunk.iter().map(|n| put_op(format!("k/{n:05}"), "v"))).await;
    }
    let read = Read { count: true, ..Read::new(KeyRange::prefix("k/")) };
    let mut pages = peer.pages(read.clone()).unwrap();
    let first = pages.next().await.unwrap().unwrap();
    let revision = first.revision;
    assert_eq!((revision, first.count), (11, Some(10_000)));
    assert!(first.kvs.len() < 10_000, "a page is bounded");
    write(&store, [delete_op(KeyRange::prefix("k/"))]).await;
    let mut keys: Vec<_> = first.kvs.into_iter().map(|kv| kv.key).collect();
    while let Some(page) = pages.next().await.unwrap() {
        assert_eq!(page.revision, revision, "every page is of the first one's revision");
        assert!(!page.more);
        keys.extend(page.kvs.into_iter().map(|kv| kv.key));
    }
    assert_eq!(keys.len(), 10_000);
    assert!(keys.is_sorted());
    let limited = Read { limit: 9_000, revision: Some(revision), ..read };
    let limited = peer.read(limited).await.unwrap();
    assert_eq!((limited.kvs.len(), limited.more, limited.count), (9_000, true, Some(10_000)));
}

async fn every_page_of_a_walk_has_the_remaining_count(db: &Database) {
    const KEYS: usize = 1_000;
    let (store, peer) = db.pair().await;
    write(&store, (0..KEYS).map(|n| put_op(format!("k/{n:04}"), ""))).await;
    let mut read = Read { limit: 300, count: true, ..Read::new(KeyRange::prefix("k/")) };
    for left in [1_000, 700, 400, 100] {
        let page = peer.read(read.clone()).await.unwrap();
        assert_eq!((page.count, page.more), (Some(left), left > 300));
        read.revision = read.revision.or(Some(page.revision));
        read.range = read.range.after(&page.kvs.last().unwrap().key);
        // What happens meanwhile is not part of the walk.
        write(&store, [put_op(format!("k/new-{left}"), ""), delete_op(KeyRange::key("k/0999"))]).await;
    }
    assert_eq!(peer.read(Read { revision: None, ..read }).await.unwrap().count, Some(4));
}

/// Values may be cached, in full or in part, but a list is always one snapshot.
async fn lists_beside_writers_and_compaction_are_snapshots(db: &Database) {
    const KEYS: usize = 200;
    const ROUNDS: usize = 40;
    for value_cache_bytes in [0, 40_000, 1 << 20] {
        let (store, peer) = db.pair_with(|config| config.value_cache_bytes = value_cache_bytes).await;
        let round =
            |round: usize| (0..KEYS).map(move |n| put_op(format!("k/{n:03}"), format!("{n:0100}/{round}")));
        let first = write(&store, round(0)).await;
        let writer = tokio::spawn(async move {
            for number in 1..ROUNDS {
                let revision = write(&store, round(number)).await;
                store.compact(revision).await.unwrap();
                store.wait_for_compaction().await.unwrap();
            }
        });
        let mut last = 0;
        while last < first + ROUNDS as i64 - 1 {
            // Asked for in one page, which cannot expire on its way.
            let read = peer.read(Read { limit: 128, ..Read::new(KeyRange::prefix("k/")) }).await.unwrap();
            let number = read.revision - first;
            assert_eq!(read.kvs.len(), 128);
            for (n, kv) in read.kvs.iter().enumerate() {
                assert_eq!((pair(kv), kv.revision), (format!("k/{n:03}={n:0100}/{number}"), read.revision));
            }
            assert!(read.revision >= last);
            last = read.revision;
        }
        writer.await.unwrap();
        peer.close().await;
    }
}

async fn acknowledged_writes_are_visible_to_all_processes(db: &Database) {
    let (store, peer) = db.pair().await;
    for number in 0..50 {
        let revision = put(&store, "a", format!("{number}")).await;
        let kv = get(&peer, "a").await.unwrap();
        assert_eq!((pair(&kv), kv.revision), (format!("a={number}"), revision));
    }
}

/// Values between brackets, with their revisions; none that begins with `!`.
#[derive(Debug)]
struct Bracketed;

impl RowEncoder for Bracketed {
    fn append(&self, to: &mut BytesMut, value: &[u8], revision: Revision) -> bool {
        to.extend_from_slice(format!("[{}@{revision}]", String::from_utf8_lossy(value)).as_bytes());
        !value.starts_with(b"!")
    }
}

/// Reads every encoded page: the last key, and the bytes.
async fn encoded(store: &Store, read: Read) -> Vec<(Bytes, Option<Bytes>)> {
    let encoder: Arc<dyn RowEncoder> = Arc::new(Bracketed);
    let (mut pages, mut delivered) = (store.pages(read).unwrap(), Vec::new());
    while let Some(EncodedPage { page, bytes, keys, last }) = pages.next_encoded(&encoder).await.unwrap() {
        match &bytes {
            Some(bytes) => {
                assert_eq!(bytes.iter().filter(|byte| **byte == b'[').count(), keys);
                assert!(page.kvs.is_empty(), "versions are where the page says");
            }
            None => assert_eq!(page.kvs.len(), keys),
        }
        delivered.push((last.map(|(key, _)| key).unwrap_or_default(), bytes));
    }
    delivered
}

async fn encoded_pages_equal_stored_pages(db: &Database) {
    const KEYS: usize = 3000;
    let (store, peer) = db.pair().await;
    for first in (0..KEYS).step_by(500) {
        write(
            &store,
            (first..first + 500).map(|n| {
                let terms = Terms::new([("half", if n % 2 == 0 { "even" } else { "odd" })]);
                Op::Put(Put { terms, ..Put::new(format!("k/{n:04}"), format!("{n}")) })
            }),
        )
        .await;
    }
    let then = peer.revision().await.unwrap();
    let even = Filter(vec![Requirement::equals("half", "even")]);
    // Afterwards the same is read from the past.
    for time in ["now", "then"] {
        for (filter, limit) in [(Filter::everything(), 0), (even.clone(), 0), (even.clone(), 700)] {
            let revision = (time == "then").then_some(then);
            let read = Read { revision, filter, limit, ..Read::new(KeyRange::prefix("k/")) };
            let plain = peer.read(read.clone()).await.unwrap();
            let expected: String = plain
                .kvs
                .iter()
                .map(|kv| format!("[{}@{}]", String::from_utf8_lossy(&kv.value), kv.revision))
                .collect();
            let pages = encoded(&peer, read).await;
            assert!(pages.len() > 1 && pages.last().unwrap().0 == plain.kvs.last().unwrap().key);
            let delivered: Vec<u8> = pages.into_iter().flat_map(|(_, bytes)| bytes.unwrap()).collect();
            assert!(delivered == expected.as_bytes(), "{time}, {limit}");
        }
        write(&store, [put_op("k/0000", "other"), put_op("k/2999", "other")]).await;
    }
}

/// However large the values are, a page holds little more than its size.
async fn pages_of_large_values_are_bounded_by_size(db: &Database) {
    const KEYS: usize = 60;
    const VALUE: usize = 150_000;
    /// The largest page, and the value that ends it.
    const PAGE_MAX: usize = (2 << 20) + VALUE + 64;
    for value_cache_bytes in [0, 64 << 20] {
        let (store, peer) = db.pair_with(|config| config.value_cache_bytes = value_cache_bytes).await;
        // Small ones first, by which the size of a page would be guessed too large.
        write(&store, (0..200).map(|n| put_op(format!("a/{n:03}"), "v"))).await;
        for n in 0..KEYS {
            let value = "v".repeat(VALUE);
            let terms = Terms::new([("half", if n % 2 == 0 { "even" } else { "odd" })]);
            write(&store, [Op::Put(Put { terms, ..Put::new(format!("k/{n:03}"), value) })]).await;
        }
        let then = peer.revision().await.unwrap();
        let even = Filter(vec![Requirement::equals("half", "even")]);
        // The second time, values are cached; then the same is read from the past.
        for time in ["first", "again", "then"] {
            if time == "then" {
                write(&store, [put_op("k/000", "other")]).await;
            }
            for (filter, expected) in [(Filter::everything(), KEYS + 200), (even.clone(), KEYS / 2)] {
                let revision = (time == "then").then_some(then);
                let read = Read { revision, filter, count: true, ..Read::new(KeyRange::all()) };
                let (mut pages, mut keys) = (peer.pages(read).unwrap(), Vec::new());
                while let Some(page) = pages.next().await.unwrap() {
                    let bytes: usize = page.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
                    assert!(bytes <= PAGE_MAX, "{time}: a page of {bytes} bytes");
                    assert!(page.count.is_none_or(|count| count == expected as u64));
                    for kv in &page.kvs {
                        assert!(kv.key.starts_with(b"a/") || kv.value.len() == VALUE, "{time}");
                    }
                    keys.extend(page.kvs.into_iter().map(|kv| kv.key));
                }
                assert_eq!(keys.len(), expected, "{time}");
                assert!(keys.is_sorted(), "{time}");
            }
        }
        peer.close().await;
    }
}

async fn page_with_an_unencodable_row_is_returned_as_stored(db: &Database) {
    let (store, peer) = db.pair().await;
    fill(&store, &["a", "b"]).await;
    put(&store, "c", "!").await;
    let all = Read::new(KeyRange::all());
    assert_eq!(encoded(&peer, all.clone()).await, [("c".into(), None)]);
    let two = Read { limit: 2, ..all };
    assert_eq!(encoded(&peer, two).await, [("b".into(), Some("[a@2][b@3]".into()))]);
    assert_eq!(encoded(&peer, Read::new(KeyRange::key("a"))).await, [("a".into(), Some("[a@2]".into()))]);
    assert_eq!(encoded(&peer, Read::new(KeyRange::prefix("z"))).await, [("".into(), Some("".into()))]);
}

on_every_engine! {
    encoded_pages_equal_stored_pages,
    pages_of_large_values_are_bounded_by_size,
    page_with_an_unencodable_row_is_returned_as_stored,
    ranges_are_sorted_by_key,
    prefix_read_excludes_neighbours,
    empty_range_returns_the_revision,
    keys_are_bytes_in_byte_order,
    values_are_arbitrary_bytes,
    limited_read_sets_more_and_counts_all,
    keys_only_read_omits_values,
    count_only_read_returns_no_keys,
    past_revisions_read_as_they_were,
    future_revisions_cannot_be_read,
    pages_continue_at_the_revision_of_the_first,
    paged_read_is_one_snapshot,
    every_page_of_a_walk_has_the_remaining_count,
    lists_beside_writers_and_compaction_are_snapshots,
    acknowledged_writes_are_visible_to_all_processes,
}
