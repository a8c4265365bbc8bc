//! The engine within this process.

use std::{path::PathBuf, process::Command, time::Duration};

use bson::{Bson, RawDocumentBuf, doc};
use slate::{Engine, IndexSpec, Query};

use crate::work::{DOCUMENTS, Stopwatch, Subject, Work, conjunction, document, lookup_ids};

/// Store below the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    #[cfg(feature = "rocks")]
    Rocks,
}

/// Slate without a server.
pub(crate) struct Embedded {
    store: Store,
    documents: Vec<RawDocumentBuf>,
    engine: Engine,
    /// Data directory of the engine.
    _folder: Option<tempfile::TempDir>,
}

impl Embedded {
    pub(crate) fn new(store: Store) -> anyhow::Result<Self> {
        let documents =
            (0..DOCUMENTS).map(|n| RawDocumentBuf::try_from(&document(n))).collect::<Result<_, _>>()?;
        let (engine, folder) = open(store)?;
        Ok(Self { store, documents, engine, _folder: folder })
    }
}

fn open(store: Store) -> anyhow::Result<(Engine, Option<tempfile::TempDir>)> {
    Ok(match store {
        Store::Memory => (Engine::in_memory(), None),
        #[cfg(feature = "rocks")]
        Store::Rocks => {
            use slate::store::{RocksOptions, RocksStore};
            let folder = tempfile::tempdir()?;
            let store = RocksStore::open(folder.path(), &RocksOptions::default())?;
            (Engine::open(std::sync::Arc::new(store))?, Some(folder))
        }
    })
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
        let (filter, sort, limit) = match work {
            Work::Scan => (doc! {}, doc! {}, None),
            Work::Equality => (doc! { "status": "active" }, doc! {}, None),
            Work::Conjunction => (conjunction(), doc! {}, None),
            Work::Sorted => (doc! {}, doc! { "score": -1 }, Some(200)),
            Work::Lookups => {
                let mut found = 0;
                for id in lookup_ids() {
                    found += usize::from(self.engine.get("c", &Bson::Int32(id), |_| ())?.is_some());
                }
                return Ok(found);
            }
        };
        let query = Query { limit, ..Query::parse(&filter, &sort, &doc! {})? };
        let (mut count, mut bytes) = (0, 0);
        self.engine.visit("c", &query, &mut |document| {
            count += 1;
            bytes += document.as_bytes().len();
            Ok(true)
        })?;
        anyhow::ensure!(bytes > 0);
        Ok(count)
    }
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
