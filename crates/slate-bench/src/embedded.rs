//! The engine within this process.

use std::{path::PathBuf, process::Command, time::Duration};

use bson::{Bson, RawDocumentBuf, doc};
use slate::{Engine, IndexSpec, Query, Update};

use crate::{
    mixed,
    work::{DOCUMENTS, Stopwatch, Subject, Work, conjunction, document, lookup_ids},
};

/// Store below the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    /// RocksDB, as it is by default.
    #[cfg(feature = "rocks")]
    Rocks,
    /// RocksDB with nothing of it in memory but its own caches.
    #[cfg(feature = "rocks")]
    RocksOnDisk,
}

/// Slate without a server.
pub(crate) struct Embedded {
    store: Store,
    documents: Vec<RawDocumentBuf>,
    /// Queries by work, prepared as the peer's statements are.
    queries: Vec<(Work, Query)>,
    engine: Engine,
    /// Data directory of the engine.
    _folder: Option<tempfile::TempDir>,
}

impl Embedded {
    pub(crate) fn new(store: Store) -> anyhow::Result<Self> {
        let documents =
            (0..DOCUMENTS).map(|n| RawDocumentBuf::try_from(&document(n))).collect::<Result<_, _>>()?;
        let queries = [
            (Work::Scan, doc! {}, doc! {}, None),
            (Work::Equality, doc! { "status": "active" }, doc! {}, None),
            (Work::Conjunction, conjunction(), doc! {}, None),
            (Work::Sorted, doc! {}, doc! { "score": -1 }, Some(200)),
        ]
        .into_iter()
        .map(|(work, filter, sort, limit)| {
            Ok((work, Query { limit, ..Query::parse(&filter, &sort, &doc! {})? }))
        })
        .collect::<slate::Result<_>>()?;
        let (engine, folder) = open(store)?;
        Ok(Self { store, documents, queries, engine, _folder: folder })
    }

    /// Runs the mixed load. Queries and updates are parsed each time, as a server does.
    pub(crate) fn mixed(&self) -> anyhow::Result<f64> {
        let update = doc! { "$inc": { "score": 1 } };
        mixed::run(|| {
            let mut lookup = self.engine.prepare_lookup("c")?;
            let update = &update;
            Ok(move |id, write| {
                if write {
                    let query =
                        Query { limit: Some(1), ..Query::parse(&doc! { "_id": id }, &doc! {}, &doc! {})? };
                    let update = Update::parse(update)?;
                    let updated = self
                        .engine
                        .write(move |transaction| transaction.update("c", &query, &update, false))?;
                    anyhow::ensure!(updated.modified == 1);
                } else {
                    let length = lookup.get(&Bson::Int32(id), |document| document.as_bytes().len())?;
                    anyhow::ensure!(length.is_some());
                }
                Ok(())
            })
        })
    }
}

fn open(store: Store) -> anyhow::Result<(Engine, Option<tempfile::TempDir>)> {
    Ok(match store {
        Store::Memory => (Engine::in_memory(), None),
        #[cfg(feature = "rocks")]
        Store::Rocks | Store::RocksOnDisk => {
            let folder = tempfile::tempdir()?;
            (open_rocks(folder.path(), store)?, Some(folder))
        }
    })
}

#[cfg(feature = "rocks")]
fn open_rocks(path: &std::path::Path, store: Store) -> slate::Result<Engine> {
    use slate::store::{RocksOptions, RocksStore};
    let mut options = RocksOptions::default();
    if store == Store::RocksOnDisk {
        options.resident_bytes = 0;
    }
    Engine::open(std::sync::Arc::new(RocksStore::open(path, &options)?))
}

#[cfg(feature = "rocks")]
impl Embedded {
    /// Closes the store and opens it again. Returns the milliseconds of opening.
    pub(crate) fn reopen(&mut self) -> anyhow::Result<f64> {
        self.engine = Engine::in_memory();
        let Some(folder) = &self._folder else { return Ok(0.0) };
        let began = Stopwatch::start();
        self.engine = open_rocks(folder.path(), self.store)?;
        Ok(began.milliseconds())
    }
}

fn create(engine: &Engine) -> slate::Result<()> {
    engine.create_collection("c")?;
    for field in ["status", "score"] {
        engine.create_index("c", IndexSpec::on(&[field])?)?;
    }
    Ok(())
}

impl Subject for Embedded {
    fn insert(&mut self) -> anyhow::Result<f64> {
        (self.engine, self._folder) = open(self.store)?;
        create(&self.engine)?;
        let documents = self.documents.clone();
        let began = Stopwatch::start();
        let inserted =
            self.engine.write(move |transaction| transaction.insert_many("c", &documents, true))?;
        let took = began.milliseconds();
        anyhow::ensure!(inserted.failures.is_empty());
        Ok(took)
    }

    fn read(&mut self, work: Work) -> anyhow::Result<usize> {
        let Some((_, query)) = self.queries.iter().find(|(other, _)| *other == work) else {
            let mut lookup = self.engine.prepare_lookup("c")?;
            let mut found = 0;
            for id in lookup_ids() {
                let length = lookup.get(&Bson::Int32(id), |document| document.as_bytes().len())?;
                found += usize::from(length.is_some_and(|length| length > 0));
            }
            return Ok(found);
        };
        let (mut count, mut bytes) = (0, 0);
        self.engine.visit("c", query, &mut |document| {
            count += 1;
            bytes += document.as_bytes().len();
            Ok(true)
        })?;
        anyhow::ensure!(bytes > 0);
        Ok(count)
    }
}

/// Repeats a piece of work, or the mixed load, for a profiler.
pub(crate) fn repeat(work: Option<Work>) -> anyhow::Result<()> {
    let mut subject = Embedded::new(Store::Memory)?;
    subject.insert()?;
    let Some(work) = work else {
        println!("mixed: {} operations per second of processor time", subject.mixed()?);
        return Ok(());
    };
    let began = Stopwatch::start();
    let mut count = 0;
    while began.seconds() < 5.0 {
        subject.read(work)?;
        count += 1;
    }
    println!("{work:?}: {} ms", began.milliseconds() / f64::from(count));
    Ok(())
}

/// Measures how much a new process grows by holding the documents, per byte of their BSON.
pub(crate) fn resident_per_byte() -> anyhow::Result<f64> {
    let program: PathBuf = std::env::current_exe()?;
    let output = Command::new(program).arg("--resident").output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Fills a memory store in steps and prints its growth a little later, for [`resident_per_byte`].
pub(crate) fn print_resident() -> anyhow::Result<()> {
    let before = resident_bytes();
    let engine = Engine::in_memory();
    create(&engine)?;
    let mut bytes = 0;
    for step in 0..DOCUMENTS / 1000 {
        let documents: Vec<RawDocumentBuf> = (step * 1000..(step + 1) * 1000)
            .map(|n| RawDocumentBuf::try_from(&document(n)))
            .collect::<Result<_, _>>()?;
        bytes += documents.iter().map(|document| document.as_bytes().len()).sum::<usize>();
        engine.write(move |transaction| transaction.insert_many("c", &documents, true))?;
    }
    // The allocator returns memory of the insertions after a second, while it is used.
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(1100));
        for n in 0..1000 {
            let document = RawDocumentBuf::try_from(&document(n))?;
            engine.write(move |transaction| transaction.upsert_many("c", &[document], false))?;
        }
    }
    println!("{}", resident_bytes().saturating_sub(before) as f64 / bytes as f64);
    Ok(())
}

/// Returns this process's resident memory in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = status.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
