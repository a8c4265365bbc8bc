//! The engine within this process.

use bson::{Bson, Document, RawDocumentBuf, doc};
use slate::{Engine, IndexSpec, Query};

use crate::{
    DOCUMENTS, conjunction, conjunction_matches, document, fastest, lookup_ids, report::Report, sqlite::Peer,
};

/// Published figures of the public project, in milliseconds: the best of each range.
struct Reference {
    insert: f64,
    scan: f64,
    equality: f64,
    conjunction: f64,
    sorted: f64,
    lookups: f64,
}

const REFERENCE_MEMORY: Reference =
    Reference { insert: 285.0, scan: 14.0, equality: 19.0, conjunction: 21.0, sorted: 0.17, lookups: 1.9 };
#[cfg(feature = "rocks")]
const REFERENCE_ROCKS: Reference =
    Reference { insert: 760.0, scan: 113.0, equality: 85.0, conjunction: 46.0, sorted: 0.25, lookups: 2.5 };

pub(crate) fn memory(report: &mut Report, peer: &Peer) -> anyhow::Result<()> {
    let before = resident_bytes();
    let engine = Engine::in_memory();
    let bytes = run(report, "memory", &engine, peer, &REFERENCE_MEMORY)?;
    let grown = resident_bytes().saturating_sub(before) as f64;
    report.alone("memory: resident bytes per byte of BSON", "x", grown / bytes as f64);
    Ok(())
}

#[cfg(feature = "rocks")]
pub(crate) fn rocks(report: &mut Report, peer: &Peer) -> anyhow::Result<()> {
    use slate::store::{RocksOptions, RocksStore};
    let folder = tempfile::tempdir()?;
    let store = RocksStore::open(folder.path(), &RocksOptions::default())?;
    run(report, "rocks", &Engine::open(std::sync::Arc::new(store))?, peer, &REFERENCE_ROCKS)?;
    Ok(())
}

/// Runs the benchmark and returns the size of the documents.
fn run(
    report: &mut Report,
    store: &str,
    engine: &Engine,
    peer: &Peer,
    reference: &Reference,
) -> anyhow::Result<usize> {
    engine.create_collection("c")?;
    for field in ["status", "score"] {
        engine.create_index("c", IndexSpec::on(&[field])?)?;
    }
    let documents: Vec<RawDocumentBuf> =
        (0..DOCUMENTS).map(|n| RawDocumentBuf::try_from(&document(n))).collect::<Result<_, _>>()?;
    let bytes = documents.iter().map(|document| document.as_bytes().len()).sum();
    let mut documents = Some(documents);
    let insert = fastest(1, || {
        let documents = documents.take().unwrap_or_default();
        let inserted = engine.write(move |transaction| transaction.insert_many("c", &documents, true))?;
        anyhow::ensure!(inserted.failures.is_empty());
        Ok(())
    })?;
    let find = |filter: Document, sort: Document, limit: Option<usize>, expected: usize| {
        let query = Query { limit, ..Query::parse(&filter, &sort, &Document::new())? };
        fastest(3, || {
            let (mut count, mut bytes) = (0, 0);
            engine.visit("c", &query, &mut |document| {
                count += 1;
                bytes += document.as_bytes().len();
                Ok(true)
            })?;
            anyhow::ensure!(count == expected && bytes > 0, "{filter}: {count} documents");
            Ok(())
        })
    };
    let half = DOCUMENTS as usize / 2;
    let scan = find(doc! {}, doc! {}, None, DOCUMENTS as usize)?;
    let equality = find(doc! { "status": "active" }, doc! {}, None, half)?;
    let and = find(conjunction(), doc! {}, None, conjunction_matches())?;
    let sorted = find(doc! {}, doc! { "score": -1 }, Some(200), 200)?;
    let lookups = fastest(3, || {
        for id in lookup_ids() {
            let found = engine.get("c", &Bson::Int32(id), |document| document.as_bytes().len())?;
            anyhow::ensure!(found.is_some());
        }
        Ok(())
    })?;
    let mut row = |name: &str, value: f64, peer: f64, reference: f64| {
        let peers = [("SQLite", peer), ("the public project", reference)];
        report.lower(&format!("{store}: {name}"), "ms", value, &peers);
    };
    row("bulk insert of 100,000", insert, peer.insert, reference.insert);
    row("full scan", scan, peer.scan, reference.scan);
    row("indexed equality to 50,000", equality, peer.equality, reference.equality);
    row("3-term AND", and, peer.conjunction, reference.conjunction);
    row("indexed sort, take 200", sorted, peer.sorted, reference.sorted);
    row("1,000 point look-ups", lookups, peer.lookups, reference.lookups);
    Ok(bytes)
}

/// Returns this process's resident memory in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = status.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
