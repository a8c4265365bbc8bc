//! What a power cut leaves: nobody has been told of anything that is not on the disk.
//!
//! The disk here is a folder of copies, made whenever the store brings its log to the disk: what has been written
//! since is what a power cut takes.

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

use super::{Sqlite, durable::SyncLog, log_file::LogFile};
use crate::{
    Config, Endpoint, Error, KeyRange, Op, Put, Read, Revision, Store, Txn, Watch, metrics::Metrics,
};

/// How long a sync takes at the least: time enough to be caught unsynced.
const SLOW: Duration = Duration::from_millis(3);

/// A disk that can be slow, stuck or broken.
#[derive(Debug, Default)]
struct Disk {
    /// Held by a sync, and by a test that wants none.
    busy: Mutex<()>,
    broken: AtomicBool,
}

impl Disk {
    /// Brings everything in `memory` to `disk`, as a sync does.
    fn sync(self: &Arc<Self>, log: LogFile, memory: &Path, disk: &Path) -> SyncLog {
        let (this, memory, disk) = (self.clone(), memory.to_owned(), disk.to_owned());
        Box::new(move || {
            let _busy = this.busy.lock().unwrap();
            if this.broken.load(Ordering::Relaxed) {
                return Err(io::Error::other("broken"));
            }
            std::thread::sleep(SLOW);
            log.lay_out();
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

/// A store over a disk of ours.
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
            Sqlite::open_on(&config, metrics.clone(), |log| disk.sync(log, &memory, &on_disk)).unwrap();
        let store = Store::start(Arc::new(engine), config, metrics).await.unwrap();
        Self { folder, disk, store }
    }

    /// What the machine finds on its disk when the power is back.
    async fn after_power_cut(&self) -> Store {
        self.after_power_cut_with(|_| {}).await
    }

    /// As that, with what a disk may have made of the log where it was not synced.
    async fn after_power_cut_with(&self, damage: impl FnOnce(&mut Vec<u8>)) -> Store {
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

/// What somebody has been told: what was written at a revision.
type Told = Arc<Mutex<BTreeMap<Revision, (Bytes, Bytes)>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_takes_nothing_that_anybody_was_told_of() {
    let machine = Machine::start().await;
    let (told, newest) = (Told::default(), Arc::new(AtomicI64::new(0)));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..8 {
        let (store, told, newest) = (machine.store.clone(), told.clone(), newest.clone());
        clients.spawn(async move {
            for n in 0.. {
                let (key, value) = (format!("key-{}", (client + n) % 10), format!("{client}-{n}"));
                let revision = put(&store, &key, &value).await.unwrap();
                told.lock().unwrap().insert(revision, (key.into(), value.into()));
                newest.fetch_max(revision, Ordering::Relaxed);
            }
        });
    }
    for reader in 0..4 {
        let (store, told, newest) = (machine.store.clone(), told.clone(), newest.clone());
        clients.spawn(async move {
            loop {
                let range =
                    if reader == 0 { KeyRange::all() } else { KeyRange::key(format!("key-{reader}")) };
                let read = store.read(Read::new(range)).await.unwrap();
                newest.fetch_max(read.revision, Ordering::Relaxed);
                let shown = read.kvs.into_iter().map(|kv| (kv.revision, (kv.key, kv.value)));
                told.lock().unwrap().extend(shown);
                tokio::task::yield_now().await;
            }
        });
    }
    let mut watcher = machine.store.watch(Watch::new(KeyRange::all())).await.unwrap();
    let events = told.clone();
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
    while told.lock().unwrap().len() < 500 {
        assert!(Instant::now() < deadline, "500 writes take more than a minute");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The power is cut: from here on nothing reaches the disk, so whatever anybody is told of is there already.
    let cut = machine.disk.busy.lock().unwrap();
    tokio::task::block_in_place(|| std::thread::sleep(SLOW));
    let (told, newest) = (std::mem::take(&mut *told.lock().unwrap()), newest.load(Ordering::Relaxed));
    let survivor =
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(machine.after_power_cut()));
    drop(cut);
    clients.shutdown().await;
    assert!(survivor.revision().await.unwrap() >= newest);
    for (revision, (key, value)) in told {
        let read = Read { revision: Some(revision), ..Read::new(KeyRange::key(key.clone())) };
        let found = survivor.read(read).await.unwrap().kvs;
        assert_eq!((found[0].revision, &found[0].value), (revision, &value), "{key:?} at {revision}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_sync_is_under_way_reads_show_what_was_before_it() {
    let Machine { disk, store, folder } = Machine::start().await;
    let old = put(&store, "old", "1").await.unwrap();
    let stuck = disk.busy.lock().unwrap();
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
    // Others go on, and see the store as it was.
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
            assert!(tokio::time::timeout(waits, watcher.next()).await.is_err(), "told too early");
        });
    });
    assert!(!writer.is_finished());
    drop(stuck);
    assert_eq!(writer.await.unwrap().unwrap(), old + 1);
    assert_eq!(get(&store, "new").await.unwrap(), (old + 1, Some("2".into())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_broken_disk_did_not_keep_is_neither_promised_nor_shown() {
    let machine = Machine::start().await;
    let store = &machine.store;
    let kept = put(store, "kept", "1").await.unwrap();
    let mut watcher = store.watch(Watch::new(KeyRange::all()).after(kept)).await.unwrap();
    machine.disk.broken.store(true, Ordering::Relaxed);
    let lost = put(store, "lost", "2").await.unwrap_err();
    assert!(matches!(&lost, Error::AmbiguousCommit(reason) if reason.contains("broken")), "{lost}");
    // Not even once the disk is well: it may have dropped what it could not write.
    machine.disk.broken.store(false, Ordering::Relaxed);
    let refused = put(store, "more", "3").await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    assert!(matches!(get(store, "lost").await, Err(Error::Unavailable(_))));
    assert_eq!(get(store, "kept").await.unwrap(), (kept, Some("1".into())));
    let told = tokio::time::timeout(Duration::from_millis(300), watcher.next()).await;
    assert!(told.is_err(), "{told:?}");
    let survivor = machine.after_power_cut().await;
    assert_eq!(get(&survivor, "lost").await.unwrap(), (kept, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_power_cut_leaves_beyond_the_log_is_no_part_of_it() {
    let machine = Machine::start().await;
    let mut last = 0;
    for n in 0..50 {
        last = put(&machine.store, &format!("key-{n}"), "x").await.unwrap();
    }
    let laid_out = fs::read(machine.folder.path().join("disk/store.db-wal")).unwrap();
    let end = laid_out.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert!(end + 4096 < laid_out.len(), "nothing is laid out beyond {end} of {}", laid_out.len());
    // The last frame is of some page whose last bytes may be zeros; a page on there is none.
    let beyond = end + 4096;
    let cuts: [fn(&mut [u8]); 2] =
        [|rest| rest.fill(0xff), |rest| rest.iter_mut().step_by(7).for_each(|byte| *byte = 1)];
    for (number, cut) in cuts.into_iter().enumerate() {
        let survivor = machine.after_power_cut_with(|log| cut(&mut log[beyond..])).await;
        assert_eq!(survivor.revision().await.unwrap(), last, "cut {number}");
        assert_eq!(get(&survivor, "key-49").await.unwrap(), (last, Some("x".into())));
        let next = put(&survivor, "next", "y").await.unwrap();
        assert_eq!(next, last + 1);
        survivor.close().await;
    }
    let survivor = machine.after_power_cut_with(|log| log.truncate(beyond)).await;
    assert_eq!(survivor.revision().await.unwrap(), last, "as long as the log itself");
}
