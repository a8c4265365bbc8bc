//! Power loss: only durable commits are revealed.
//!
//! The disk is simulated by a directory of copies, made whenever the store syncs its log. A power loss leaves the last
//! copies.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{Sqlite, durability::SyncLog, wal_file::WalFile};
use crate::{
    Config, Endpoint, Error, KeyRange, Op, Put, Read, Revision, Store, Txn, Watch, metrics::Metrics,
};

/// Minimum time of a sync, so that commits are observed before they are durable.
const SYNC_TIME: Duration = Duration::from_millis(3);

/// A disk that can be slow, blocked or failing.
#[derive(Debug, Default)]
struct Disk {
    /// Held by a sync, and by a test that blocks syncs.
    blocked: Mutex<()>,
    failing: AtomicBool,
}

impl Disk {
    /// Returns a sync that copies everything in `memory` to `disk`.
    fn sync(self: &Arc<Self>, wal: WalFile, memory: &Path, disk: &Path) -> SyncLog {
        let (this, memory, disk) = (self.clone(), memory.to_owned(), disk.to_owned());
        Box::new(move || {
            let _sync = this.blocked.lock().unwrap();
            if this.failing.load(Ordering::Relaxed) {
                return Err(io::Error::other("broken"));
            }
            std::thread::sleep(SYNC_TIME);
            wal.preallocate();
            copy(&memory, &disk)
        })
    }
}

/// Copies the database, then its log.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for name in ["store.db", "store.db-wal"] {
        fs::copy(from.join(name), to.join(name))?;
    }
    Ok(())
}

/// A store on a simulated disk.
struct Machine {
    folder: tempfile::TempDir,
    disk: Arc<Disk>,
    store: Store,
}

impl Machine {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (memory, on_disk) = (folder.path().join("memory"), folder.path().join("disk"));
        fs::create_dir(&memory).unwrap();
        fs::create_dir(&on_disk).unwrap();
        let disk = Arc::<Disk>::default();
        let (config, metrics) = (config(&memory), Metrics::default());
        let engine =
            Sqlite::open_with_sync(&config, metrics.clone(), |wal| disk.sync(wal, &memory, &on_disk))
                .unwrap();
        let store = Store::start(Arc::new(engine), config, metrics).await.unwrap();
        Self { folder, disk, store }
    }

    /// Opens what a power loss leaves.
    async fn after_power_loss(&self) -> Store {
        self.after_power_loss_with(|_| {}).await
    }

    /// Opens what a power loss leaves, with damage where the log was not synced.
    async fn after_power_loss_with(&self, damage: impl FnOnce(&mut Vec<u8>)) -> Store {
        let survived = tempfile::tempdir_in(self.folder.path()).unwrap().keep();
        copy(&self.folder.path().join("disk"), &survived).unwrap();
        let path = survived.join("store.db-wal");
        let mut log = fs::read(&path).unwrap();
        damage(&mut log);
        fs::write(&path, log).unwrap();
        Store::open(config(&survived)).await.unwrap()
    }
}

fn config(folder: &Path) -> Config {
    let path: PathBuf = folder.join("store.db");
    Config { retention: None, ..Config::new(Endpoint::Sqlite(path)) }
}

async fn put(store: &Store, key: &str, value: &str) -> Result<Revision, Error> {
    let put = Put::new(key.to_owned(), value.to_owned());
    Ok(store.txn(Txn::of([Op::Put(put)])).await?.revision)
}

async fn get(store: &Store, key: &str) -> Result<(Revision, Option<Bytes>), Error> {
    let read = store.read(Read::new(KeyRange::key(key.to_owned()))).await?;
    Ok((read.revision, read.kvs.into_iter().next().map(|kv| kv.value)))
}

/// Revealed writes, by revision.
type Revealed = Arc<Mutex<BTreeMap<Revision, (Bytes, Bytes)>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_loss_undoes_nothing_that_was_revealed() {
    let machine = Machine::start().await;
    let (revealed, newest) = (Revealed::default(), Arc::new(AtomicI64::new(0)));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..8 {
        let (store, revealed, newest) = (machine.store.clone(), revealed.clone(), newest.clone());
        clients.spawn(async move {
            for n in 0.. {
                let (key, value) = (format!("key-{}", (client + n) % 10), format!("{client}-{n}"));
                let revision = put(&store, &key, &value).await.unwrap();
                revealed.lock().unwrap().insert(revision, (key.into(), value.into()));
                newest.fetch_max(revision, Ordering::Relaxed);
            }
        });
    }
    for reader in 0..4 {
        let (store, revealed, newest) = (machine.store.clone(), revealed.clone(), newest.clone());
        clients.spawn(async move {
            loop {
                let range =
                    if reader == 0 { KeyRange::all() } else { KeyRange::key(format!("key-{reader}")) };
                let read = store.read(Read::new(range)).await.unwrap();
                newest.fetch_max(read.revision, Ordering::Relaxed);
                let shown = read.kvs.into_iter().map(|kv| (kv.revision, (kv.key, kv.value)));
                revealed.lock().unwrap().extend(shown);
                tokio::task::yield_now().await;
            }
        });
    }
    let mut watcher = machine.store.watch(Watch::new(KeyRange::all())).await.unwrap();
    let events = revealed.clone();
    clients.spawn(async move {
        loop {
            let batch = watcher.next().await.unwrap();
            for seen in batch.events() {
                let kv = &seen.event.kv;
                events.lock().unwrap().insert(kv.revision, (kv.key.clone(), kv.value.clone()));
            }
        }
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while revealed.lock().unwrap().len() < 500 {
        assert!(Instant::now() < deadline, "500 writes take more than a minute");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // From here on nothing reaches the disk, so everything that is revealed must be there already.
    let cut = machine.disk.blocked.lock().unwrap();
    tokio::task::block_in_place(|| std::thread::sleep(SYNC_TIME));
    let (revealed, newest) = (std::mem::take(&mut *revealed.lock().unwrap()), newest.load(Ordering::Relaxed));
    let survivor = tokio::task::block_in_place(|| {
        tokio::runtime::Handle::current().block_on(machine.after_power_loss())
    });
    drop(cut);
    clients.shutdown().await;
    assert!(survivor.revision().await.unwrap() >= newest);
    for (revision, (key, value)) in revealed {
        let read = Read { revision: Some(revision), ..Read::new(KeyRange::key(key.clone())) };
        let found = survivor.read(read).await.unwrap().kvs;
        assert_eq!((found[0].revision, &found[0].value), (revision, &value), "{key:?} at {revision}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_during_a_sync_show_the_state_before_it() {
    let Machine { disk, store, folder } = Machine::start().await;
    let old = put(&store, "old", "1").await.unwrap();
    let blocked = disk.blocked.lock().unwrap();
    let writer = tokio::spawn({
        let store = store.clone();
        async move { put(&store, "new", "2").await }
    });
    // Committed, as SQLite sees it.
    let raw = rusqlite::Connection::open(folder.path().join("memory/store.db")).unwrap();
    let committed = || raw.query_row("SELECT count(*) FROM live WHERE key = x'6e6577'", [], |row| row.get(0));
    let deadline = Instant::now() + Duration::from_secs(60);
    while committed() != Ok(1) {
        assert!(Instant::now() < deadline, "the write is never committed");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Others continue, and see the state before it.
    tokio::task::block_in_place(|| {
        tokio::runtime::Handle::current().block_on(async {
            let mut watcher = store.watch(Watch::new(KeyRange::all()).after(old)).await.unwrap();
            assert_eq!(get(&store, "old").await.unwrap(), (old, Some("1".into())));
            assert_eq!(store.revision().await.unwrap(), old);
            let future = Read { revision: Some(old + 9), ..Read::new(KeyRange::all()) };
            let refused = Error::FutureRevision { requested: old + 9, current: old };
            assert_eq!(store.read(future).await, Err(refused));
            let waits = Duration::from_millis(50);
            assert!(tokio::time::timeout(waits, get(&store, "new")).await.is_err(), "shown too early");
            assert!(tokio::time::timeout(waits, watcher.next()).await.is_err(), "delivered too early");
        });
    });
    assert!(!writer.is_finished());
    drop(blocked);
    assert_eq!(writer.await.unwrap().unwrap(), old + 1);
    assert_eq!(get(&store, "new").await.unwrap(), (old + 1, Some("2".into())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_after_a_failed_sync_are_neither_acknowledged_nor_shown() {
    let machine = Machine::start().await;
    let store = &machine.store;
    let kept = put(store, "kept", "1").await.unwrap();
    let mut watcher = store.watch(Watch::new(KeyRange::all()).after(kept)).await.unwrap();
    machine.disk.failing.store(true, Ordering::Relaxed);
    let lost = put(store, "lost", "2").await.unwrap_err();
    assert!(matches!(&lost, Error::AmbiguousCommit(reason) if reason.contains("broken")), "{lost}");
    // Not even once the disk works again: it may have dropped what it could not write.
    machine.disk.failing.store(false, Ordering::Relaxed);
    let refused = put(store, "more", "3").await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    assert!(matches!(get(store, "lost").await, Err(Error::Unavailable(_))));
    assert_eq!(get(store, "kept").await.unwrap(), (kept, Some("1".into())));
    let revealed = tokio::time::timeout(Duration::from_millis(300), watcher.next()).await;
    assert!(revealed.is_err(), "{revealed:?}");
    let survivor = machine.after_power_loss().await;
    assert_eq!(get(&survivor, "lost").await.unwrap(), (kept, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_beyond_the_log_are_ignored_after_a_power_loss() {
    let machine = Machine::start().await;
    let mut last = 0;
    for n in 0..50 {
        last = put(&machine.store, &format!("key-{n}"), "x").await.unwrap();
    }
    let wal = fs::read(machine.folder.path().join("disk/store.db-wal")).unwrap();
    let end = wal.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert!(end + 4096 < wal.len(), "nothing is preallocated beyond {end} of {}", wal.len());
    // The last frame is of some page whose last bytes may be zeros; a page on there is none.
    let beyond = end + 4096;
    let cuts: [fn(&mut [u8]); 2] =
        [|rest| rest.fill(0xff), |rest| rest.iter_mut().step_by(7).for_each(|byte| *byte = 1)];
    for (number, cut) in cuts.into_iter().enumerate() {
        let survivor = machine.after_power_loss_with(|log| cut(&mut log[beyond..])).await;
        assert_eq!(survivor.revision().await.unwrap(), last, "cut {number}");
        assert_eq!(get(&survivor, "key-49").await.unwrap(), (last, Some("x".into())));
        let next = put(&survivor, "next", "y").await.unwrap();
        assert_eq!(next, last + 1);
        survivor.close().await;
    }
    let survivor = machine.after_power_loss_with(|log| log.truncate(beyond)).await;
    assert_eq!(survivor.revision().await.unwrap(), last, "as long as the log itself");
}
