//! Validation of a collection: every index says the same as the documents.

use std::collections::BTreeSet;

use bson::raw::RawDocument;

use crate::{
    catalog::{self, Build, Collection, Index},
    engine::Engine,
    error::Result,
    index,
    scan::view_document,
    store::{Direction, Range, Reader},
};

/// Most faults that are reported.
const FAULTS_MAX: usize = 100;

/// Result of a validation.
#[derive(Debug, Clone, Default)]
pub struct Validation {
    /// Documents read.
    pub documents: u64,
    /// Entries of all indexes.
    pub entries: u64,
    /// Disagreements between documents, indexes and counts, the first hundred. Empty: all is well.
    pub faults: Vec<String>,
}

impl Engine {
    /// Compares a collection's documents with its indexes and its count, in one snapshot.
    pub fn validate(&self, collection: &str) -> Result<Validation> {
        let (catalog, reader) = self.committer.snapshot()?;
        let collection = catalog.get(collection)?;
        let mut validation = Validation::default();
        let mut faults = Vec::new();
        let mut documents = reader.cursor(collection.space, &Range::all(), Direction::Forward)?;
        while documents.advance()? {
            validation.documents += 1;
            if let Err(error) = crate::document::parse(documents.value()) {
                faults.push(format!("document {:02x?}: {error}", documents.key()));
            }
        }
        let counted = catalog::count(reader.as_ref(), collection)?;
        if counted != validation.documents {
            faults.push(format!("{} documents, counted as {counted}", validation.documents));
        }
        for index in &collection.indexes {
            validation.entries += check_index(reader.as_ref(), collection, index, &mut faults)?;
        }
        faults.truncate(FAULTS_MAX);
        validation.faults = faults;
        Ok(validation)
    }
}

/// Compares one index with the documents and returns the number of its entries.
fn check_index(
    reader: &dyn Reader,
    collection: &Collection,
    index: &Index,
    faults: &mut Vec<String>,
) -> Result<u64> {
    let mut present = BTreeSet::new();
    let mut cursor = reader.cursor(index.space, &Range::all(), Direction::Forward)?;
    while cursor.advance()? {
        present.insert(cursor.key().to_vec());
    }
    let count = present.len() as u64;
    let mut fault = |what: &str, entry: &[u8]| {
        if faults.len() < FAULTS_MAX {
            let key = index::describe(&index.spec, entry);
            faults.push(format!("index {:?} {what} {key}", index.spec.name));
        }
    };
    // Documents from here on have not been indexed yet.
    let built_to = match &index.build {
        Build::Ready => None,
        Build::Building { next, .. } => Some(next),
    };
    let mut documents = reader.cursor(collection.space, &Range::all(), Direction::Forward)?;
    while documents.advance()? {
        let document: &RawDocument = view_document(documents.value())?;
        let expected = index::entries(&index.spec, document)?;
        let unbuilt = built_to.is_some_and(|next| documents.key() >= next.as_slice());
        for mut entry in expected.keys {
            entry.extend_from_slice(documents.key());
            if !present.remove(&entry) && !unbuilt {
                fault("lacks", &entry);
            }
        }
        if expected.multikey && !index.multikey && !unbuilt {
            fault("is not marked as multikey for", documents.key());
        }
    }
    for entry in &present {
        fault("has without a document", entry);
    }
    Ok(count)
}
