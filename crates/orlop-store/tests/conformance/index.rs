//! Index terms and the filters over them.

use std::sync::atomic::{AtomicUsize, Ordering};

use orlop_store::{Error, Filter, KeyRange, KeyValue, Op, Put, Read, Requirement, Select, Store, Terms};

use crate::{database::Database, shorthand::*};

fn labelled(key: &str, value: &str, terms: &[(&str, &str)]) -> Op {
    let terms = Terms::new(terms.iter().copied());
    Op::Put(Put { terms, ..Put::new(key.to_owned(), value.to_owned()) })
}

fn filtered(requirements: impl Into<Vec<Requirement>>) -> Read {
    Read { filter: Filter(requirements.into()), ..Read::new(KeyRange::prefix("k/")) }
}

/// The names of the keys that a filter finds, and their exact count.
async fn found(store: &Store, read: Read) -> String {
    let result = store.read(Read { count: true, ..read }).await.unwrap();
    assert_eq!(result.count, Some(result.kvs.len() as u64));
    let names = result.kvs.iter().map(|kv| kv.key[2..].escape_ascii().to_string());
    names.collect::<Vec<_>>().join(" ")
}

fn any_of(field: &str, values: &[&str]) -> Vec<String> {
    assert!(!field.is_empty());
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// Five keys with labels, one without, and one outside the range with the same labels.
async fn labels(store: &Store) {
    write(store, [labelled("k/a", "", &[("app", "web"), ("tier", "front")])]).await;
    write(store, [labelled("k/b", "", &[("app", "web"), ("tier", "back")])]).await;
    write(store, [labelled("k/c", "", &[("app", "db"), ("tier", "back")])]).await;
    write(store, [labelled("k/d", "", &[("app", "db"), ("owner", "1"), ("owner", "2")])]).await;
    write(store, [labelled("k/e", "", &[("app", ""), ("owner", "2")])]).await;
    put(store, "k/f", "").await;
    write(store, [labelled("l/a", "", &[("app", "web"), ("tier", "front")])]).await;
}

async fn requirements_select_like_label_selectors(db: &Database) {
    let (store, peer) = db.pair().await;
    labels(&store).await;
    let app = |values: &[&str]| any_of("app", values);
    let cases: Vec<(Vec<Requirement>, &str)> = vec![
        (vec![Requirement::equals("app", "web")], "a b"),
        (vec![Requirement::equals("app", "")], "e"),
        (vec![Requirement::equals("app", "none")], ""),
        (vec![Requirement::equals("owner", "2")], "d e"),
        (vec![Requirement::not_equals("app", "web")], "c d e f"),
        (vec![Requirement::not_equals("missing", "x")], "a b c d e f"),
        (vec![Requirement::In("app".into(), app(&["web", "db", "none"]))], "a b c d"),
        (vec![Requirement::In("owner".into(), app(&["1", "2"]))], "d e"),
        (vec![Requirement::In("app".into(), vec![])], ""),
        (vec![Requirement::NotIn("app".into(), app(&["web", "db"]))], "e f"),
        (vec![Requirement::NotIn("owner".into(), app(&["1"]))], "a b c e f"),
        (vec![Requirement::NotIn("app".into(), vec![])], "a b c d e f"),
        (vec![Requirement::Exists("tier".into())], "a b c"),
        (vec![Requirement::Exists("missing".into())], ""),
        (vec![Requirement::Absent("tier".into())], "d e f"),
        (vec![Requirement::Absent("missing".into())], "a b c d e f"),
        (vec![Requirement::equals("app", "web"), Requirement::equals("tier", "back")], "b"),
        (vec![Requirement::Exists("app".into()), Requirement::Absent("tier".into())], "d e"),
        (vec![Requirement::not_equals("app", "db"), Requirement::Exists("app".into())], "a b e"),
        (vec![Requirement::equals("owner", "1"), Requirement::equals("owner", "2")], "d"),
        (vec![Requirement::equals("app", "web"), Requirement::equals("app", "db")], ""),
        (vec![], "a b c d e f"),
    ];
    for (requirements, expected) in cases {
        assert_eq!(found(&peer, filtered(requirements.clone())).await, expected, "{requirements:?}");
        let inside = Read { count: true, ..filtered(requirements.clone()) };
        let inside = store.txn(orlop_store::Txn::of([Op::Read(inside)])).await.unwrap();
        let orlop_store::OpResult::Read(inside) = &inside.results[0] else { panic!("{inside:?}") };
        let names: Vec<_> = inside.kvs.iter().map(|kv| kv.key[2..].escape_ascii().to_string()).collect();
        assert_eq!(names.join(" "), expected, "inside a transaction: {requirements:?}");
        // At a past revision, after everything is gone, the same is found.
        let revision = peer.revision().await.unwrap();
        let past = Read { revision: Some(revision), ..filtered(requirements.clone()) };
        write(&store, [put_op("z", "")]).await;
        assert_eq!(found(&peer, past).await, expected, "in the past: {requirements:?}");
    }
}

/// The names of the keys that a filter finds, a page at a time.
async fn found_in_pages(store: &Store, read: Read) -> Vec<String> {
    let mut pages = store.pages(read).unwrap();
    let mut names = Vec::new();
    while let Some(page) = pages.next().await.unwrap() {
        names.extend(page.kvs.iter().map(|kv| kv.key[2..].escape_ascii().to_string()));
    }
    names
}

async fn keys_of_several_values_are_merged_in_key_order(db: &Database) {
    const KEYS: usize = 1500;
    let (store, peer) = db.pair().await;
    for start in (0..KEYS).step_by(100) {
        let batch = (start..start + 100).map(|n| {
            let (app, owner) = (format!("app-{}", n % 7), format!("{}", n % 3));
            // Every other key has two owners.
            let other = if n % 2 == 0 { "even" } else { &owner };
            labelled(&format!("k/{n:04}"), "v", &[("app", &app), ("owner", &owner), ("owner", other)])
        });
        write(&store, batch).await;
    }
    let app = |n: usize| format!("app-{}", n % 7);
    let some_apps = any_of("app", &["app-5", "app-1", "app-1", "app-9", "app-2"]);
    let is_some_app = |n: usize| some_apps.contains(&app(n));
    let every_app: Vec<String> = (0..300).map(|n| format!("app-{n}")).collect();
    let owners = any_of("owner", &["even", "0", "2"]);
    let is_owned = |n: usize| n.is_multiple_of(2) || n % 3 != 1;
    type Expected<'a> = Box<dyn Fn(usize) -> bool + 'a>;
    let cases: Vec<(Vec<Requirement>, Expected<'_>)> = vec![
        (vec![Requirement::In("app".into(), some_apps.clone())], Box::new(is_some_app)),
        (vec![Requirement::In("app".into(), every_app)], Box::new(|_| true)),
        (vec![Requirement::In("owner".into(), owners.clone())], Box::new(is_owned)),
        (
            vec![Requirement::In("owner".into(), owners), Requirement::In("app".into(), some_apps.clone())],
            Box::new(|n| is_owned(n) && is_some_app(n)),
        ),
        (
            vec![Requirement::In("app".into(), some_apps.clone()), Requirement::not_equals("app", "app-1")],
            Box::new(|n| is_some_app(n) && n % 7 != 1),
        ),
        (vec![Requirement::equals("app", "app-4")], Box::new(|n| n % 7 == 4)),
    ];
    for (requirements, expected) in &cases {
        let expected: Vec<String> = (0..KEYS).filter(|n| expected(*n)).map(|n| format!("{n:04}")).collect();
        assert_eq!(found_in_pages(&peer, filtered(requirements.clone())).await, expected, "{requirements:?}");
        let few = Read { limit: 3, ..filtered(requirements.clone()) };
        assert_eq!(found_in_pages(&peer, few).await, expected[..3], "{requirements:?}");
        let counted = Read { limit: 3, count: true, ..filtered(requirements.clone()) };
        assert_eq!(peer.read(counted).await.unwrap().count, Some(expected.len() as u64));
        let keys = Read { select: orlop_store::Select::Keys, ..filtered(requirements.clone()) };
        assert_eq!(found_in_pages(&peer, keys).await, expected, "{requirements:?}");
    }
}

async fn filters_apply_to_one_key_and_to_all(db: &Database) {
    let (store, peer) = db.pair().await;
    labels(&store).await;
    let filter = Filter(vec![Requirement::equals("app", "web")]);
    let all = Read { filter: filter.clone(), ..Read::new(KeyRange::all()) };
    assert_eq!(pairs(&peer.read(all).await.unwrap()), ["k/a=", "k/b=", "l/a="]);
    for (key, expected) in [("k/a", vec!["k/a="]), ("k/c", vec![]), ("k/x", vec![])] {
        let one = Read { filter: filter.clone(), ..Read::new(KeyRange::key(key)) };
        assert_eq!(pairs(&peer.read(one).await.unwrap()), expected);
    }
}

async fn index_follows_updates_and_deletes(db: &Database) {
    let (store, peer) = db.pair().await;
    let web = || filtered([Requirement::equals("app", "web")]);
    let owned = || filtered([Requirement::Exists("owner".into())]);
    write(&store, [labelled("k/a", "1", &[("app", "web"), ("owner", "1")])]).await;
    write(&store, [labelled("k/b", "1", &[("app", "web")])]).await;
    assert_eq!((found(&peer, web()).await, found(&peer, owned()).await), ("a b".into(), "a".into()));
    write(&store, [labelled("k/a", "2", &[("app", "db"), ("owner", "2")])]).await;
    assert_eq!((found(&peer, web()).await, found(&peer, owned()).await), ("b".into(), "a".into()));
    put(&store, "k/a", "3").await;
    assert_eq!((found(&peer, web()).await, found(&peer, owned()).await), ("b".into(), "".into()));
    delete(&store, "k/b").await;
    assert_eq!(found(&peer, web()).await, "");
    put(&store, "k/b", "again, without terms").await;
    assert_eq!(found(&peer, web()).await, "");
    let kept = Put { keep_value: true, ..Put::new("k/b", "") };
    write(&store, [labelled("k/b", "v", &[("app", "web")])]).await;
    write(&store, [Op::Put(kept)]).await;
    assert_eq!(found(&peer, web()).await, "b", "what keeps its value keeps its terms");
}

async fn past_revisions_are_filtered_by_the_terms_they_had(db: &Database) {
    let (store, peer) = db.pair().await;
    write(&store, [labelled("k/a", "1", &[("app", "web")])]).await;
    write(&store, [labelled("k/a", "2", &[("app", "db")])]).await;
    delete(&store, "k/a").await;
    write(&store, [labelled("k/a", "4", &[("app", "web")])]).await;
    for (revision, web, other) in [(1, "", ""), (2, "a", ""), (3, "", "a"), (4, "", ""), (5, "a", "")] {
        let at = |requirement| Read { revision: Some(revision), ..filtered([requirement]) };
        assert_eq!(found(&peer, at(Requirement::equals("app", "web"))).await, web, "at {revision}");
        assert_eq!(found(&peer, at(Requirement::not_equals("app", "web"))).await, other, "at {revision}");
    }
}

async fn filtered_pages_are_filled(db: &Database) {
    let (store, peer) = db.pair().await;
    for chunk in (0..2000).collect::<Vec<_>>().chunks(500) {
        let ops = chunk.iter().map(|n| {
            let color = if n % 400 == 399 { "rare" } else { "common" };
            labelled(&format!("k/{n:04}"), "v", &[("color", color), ("parity", ["even", "odd"][n % 2])])
        });
        write(&store, ops).await;
    }
    let rare = || filtered([Requirement::equals("color", "rare"), Requirement::equals("parity", "odd")]);
    assert_eq!(found(&peer, rare()).await, "0399 0799 1199 1599 1999");
    for select in [Select::Values, Select::Keys] {
        let mut read = Read { limit: 2, count: true, select, ..rare() };
        let mut pages = Vec::new();
        loop {
            let page = peer.read(read.clone()).await.unwrap();
            pages.push((page.kvs.len(), page.count.unwrap(), page.more));
            let Some(last) = page.kvs.last().filter(|_| page.more) else { break };
            // Writes beside the reader must not matter: its revision is pinned.
            read.revision.get_or_insert(page.revision);
            read.range = read.range.after(&last.key);
            write(&store, [labelled("k/0000", "v", &[("color", "rare"), ("parity", "odd")])]).await;
            write(&store, [labelled("k/1999", "v", &[("color", "common"), ("parity", "odd")])]).await;
        }
        assert_eq!(pages, [(2, 5, true), (2, 3, true), (1, 1, false)], "{select:?}");
        write(&store, [labelled("k/0000", "v", &[("color", "common")])]).await;
        write(&store, [labelled("k/1999", "v", &[("color", "rare"), ("parity", "odd")])]).await;
    }
    let common = filtered([Requirement::equals("color", "common")]);
    let counted = peer.read(Read { select: Select::Nothing, count: true, ..common.clone() }).await.unwrap();
    assert_eq!((counted.count, counted.kvs.len()), (Some(1995), 0));
    let limited = peer.read(Read { limit: 10, count: true, ..common }).await.unwrap();
    assert_eq!((limited.kvs.len(), limited.more, limited.count), (10, true, Some(1995)));
}

async fn filters_respect_the_range(db: &Database) {
    let (store, peer) = db.pair().await;
    let ops = (0..300).map(|n| labelled(&format!("other/{n}"), "v", &[("app", "web")]));
    write(&store, ops).await;
    write(&store, [labelled("k/a", "v", &[("app", "web")]), labelled("k/b", "v", &[("app", "db")])]).await;
    assert_eq!(found(&peer, filtered([Requirement::equals("app", "web")])).await, "a");
    assert_eq!(found(&peer, filtered([Requirement::Exists("app".into())])).await, "a b");
}

async fn declaring_an_index_backfills_existing_keys(db: &Database) {
    let (store, peer) = db.pair().await;
    // As if written before the field was indexed.
    write(&store, (0..600).map(|n| put_op(format!("k/{n:03}"), format!("{}", n % 3)))).await;
    put(&store, "other", "1").await;
    let before = store.revision().await.unwrap();
    let by_value = |kv: &KeyValue| Terms::new([("value", String::from_utf8_lossy(&kv.value).into_owned())]);
    let looked_at = AtomicUsize::new(0);
    let declare = |store: Store, declaration: &'static str| {
        let looked_at = &looked_at;
        async move {
            looked_at.store(0, Ordering::Relaxed);
            let range = KeyRange::prefix("k/");
            store
                .declare_index(range, declaration, |kv| {
                    looked_at.fetch_add(1, Ordering::Relaxed);
                    by_value(kv)
                })
                .await
                .unwrap();
            looked_at.load(Ordering::Relaxed)
        }
    };
    assert_eq!(declare(store.clone(), "value").await, 600);
    assert_eq!(store.revision().await.unwrap(), before, "without new revisions");
    let ones = || filtered([Requirement::equals("value", "1")]);
    let count = || async { peer.read(Read { count: true, ..ones() }).await.unwrap().count };
    assert_eq!(count().await, Some(200));
    let outside = Read { range: KeyRange::all(), count: true, ..ones() };
    assert_eq!(peer.read(outside).await.unwrap().count, Some(200), "only the range is touched");
    assert_eq!(declare(store.clone(), "value").await, 0, "the same declaration is no work");
    assert_eq!(declare(peer.clone(), "value").await, 0, "nor for another process");
    assert_eq!(declare(store.clone(), "value, version 2").await, 600);
    assert_eq!(count().await, Some(200));
    write(&store, [labelled("k/001", "9", &[("value", "9")])]).await;
    assert_eq!(count().await, Some(199));
}

async fn filters_before_the_index_floor_are_refused(db: &Database) {
    let (store, peer) = db.pair().await;
    let first = put(&store, "k/a", "1").await;
    put(&store, "k/a", "2").await;
    let terms = |kv: &KeyValue| Terms::new([("v", String::from_utf8_lossy(&kv.value).into_owned())]);
    store.declare_index(KeyRange::prefix("k/"), "v", terms).await.unwrap();
    let past = || Read { revision: Some(first), ..filtered([Requirement::equals("v", "1")]) };
    assert_eq!(store.read(past()).await.unwrap_err(), Error::NotIndexed("v".into()));
    assert_eq!(peer.read(past()).await.unwrap_err(), Error::NotIndexed("v".into()), "whoever declared it");
    let inside = peer.txn(orlop_store::Txn::of([Op::Read(past())])).await;
    assert_eq!(inside.unwrap_err(), Error::NotIndexed("v".into()), "nor inside a transaction");
    assert_eq!(found(&store, filtered([Requirement::equals("v", "2")])).await, "a");
    let unfiltered = Read { revision: Some(first), ..Read::new(KeyRange::all()) };
    assert_eq!(pairs(&store.read(unfiltered).await.unwrap()), ["k/a=1"]);
}

async fn index_declarations_distinguish_range_ends(db: &Database) {
    let (store, _) = db.pair().await;
    put(&store, "k/", "1").await;
    put(&store, "k/a", "1").await;
    let terms = |_: &KeyValue| Terms::new([("seen", "yes")]);
    store.declare_index(KeyRange::key("k/"), "seen", terms).await.unwrap();
    let seen = || filtered([Requirement::equals("seen", "yes")]);
    assert_eq!(found(&store, seen()).await, "");
    assert_eq!(pairs(&store.read(seen()).await.unwrap()), ["k/=1"]);
    store.declare_index(KeyRange::prefix("k/"), "seen", terms).await.unwrap();
    assert_eq!(pairs(&store.read(seen()).await.unwrap()), ["k/=1", "k/a=1"]);
}

async fn backfill_beside_writers_loses_no_terms(db: &Database) {
    let (store, peer) = db.pair().await;
    write(&store, (0..400).map(|n| put_op(format!("k/{n:03}"), "old"))).await;
    let terms = |value: &[u8]| Terms::new([("value", String::from_utf8_lossy(value).into_owned())]);
    // Writers follow the new rule while existing versions are backfilled.
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for round in 0..5 {
                for n in (0..400).step_by(7) {
                    let value = format!("new{round}");
                    write(&store, [labelled(&format!("k/{n:03}"), &value, &[("value", &value)])]).await;
                }
            }
        }
    });
    for version in 0..5 {
        let declaration = format!("value {version}");
        let range = KeyRange::prefix("k/");
        peer.declare_index(range, &declaration, |kv| terms(&kv.value)).await.unwrap();
    }
    writer.await.unwrap();
    let all = peer.read(Read::new(KeyRange::prefix("k/"))).await.unwrap();
    assert_eq!(all.kvs.len(), 400);
    for value in ["old", "new4"] {
        let expected: Vec<_> = all.kvs.iter().filter(|kv| kv.value == value).cloned().collect();
        let read = filtered([Requirement::equals("value", value)]);
        assert_eq!(peer.read(read).await.unwrap().kvs, expected, "{value}");
    }
}

on_every_engine! {
    requirements_select_like_label_selectors,
    filters_apply_to_one_key_and_to_all,
    keys_of_several_values_are_merged_in_key_order,
    index_follows_updates_and_deletes,
    past_revisions_are_filtered_by_the_terms_they_had,
    filtered_pages_are_filled,
    filters_respect_the_range,
    declaring_an_index_backfills_existing_keys,
    filters_before_the_index_floor_are_refused,
    index_declarations_distinguish_range_ends,
    backfill_beside_writers_loses_no_terms,
}
