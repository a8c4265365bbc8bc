//! Aggregation pipelines over documents.
//!
//! A pipeline is a list of stages. Leading `$match`, `$sort`, `$skip` and `$limit` become a query, so that
//! they use indexes; the rest runs over the documents in memory, within limits.

mod expression;
mod group;
mod stage;

use bson::{Bson, Document, RawDocumentBuf};

pub use stage::Stage;

use crate::{
    engine::Engine,
    error::{Error, Result},
    filter::Filter,
    query::Query,
};

/// Most documents that a stage may hold.
const DOCUMENTS_MAX: usize = 1_000_000;
/// Most bytes that a stage may hold.
const BYTES_MAX: usize = 256 << 20;

/// A parsed pipeline.
#[derive(Debug, Clone)]
pub struct Pipeline {
    query: Query,
    stages: Vec<Stage>,
}

impl Pipeline {
    /// Parses a list of stages.
    pub fn parse(stages: &[Bson]) -> Result<Self> {
        let mut parsed = stages
            .iter()
            .map(|stage| match stage {
                Bson::Document(stage) => Stage::parse(stage),
                _ => Err(Error::invalid("Each element of the 'pipeline' array must be an object")),
            })
            .collect::<Result<Vec<_>>>()?;
        let mut query = Query::default();
        // The order of a query's parts is fixed: match, sort, skip, limit.
        let mut taken = 0;
        let mut phase = 0;
        for stage in &parsed {
            match stage {
                Stage::Match(filter) if phase == 0 => query.filter = both(query.filter, filter.clone()),
                Stage::Sort(sort) if phase < 1 => {
                    query.sort = sort.clone();
                    phase = 1;
                }
                Stage::Skip(skip) if phase < 2 => {
                    query.skip = *skip;
                    phase = 2;
                }
                Stage::Limit(limit) if phase < 3 => {
                    query.limit = Some(*limit);
                    phase = 3;
                }
                _ => break,
            }
            taken += 1;
        }
        parsed.drain(..taken);
        Ok(Self { query, stages: parsed })
    }

    /// Returns the part of the pipeline that is a query.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Returns true if the whole pipeline is a query.
    pub fn is_query(&self) -> bool {
        self.stages.is_empty()
    }

    /// Runs the pipeline. `database` is the prefix of collections that `$lookup` names.
    pub fn run(
        &self,
        engine: &Engine,
        collection: &str,
        database: &str,
        deadline: Option<std::time::Instant>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let query = Query { deadline, ..self.query.clone() };
        if let [Stage::Count(field)] = self.stages.as_slice() {
            let count = engine.count(collection, &query)?;
            return count_document(field, count).iter().map(crate::engine::raw).collect();
        }
        let mut documents = Vec::new();
        let mut bytes = 0;
        engine.visit(collection, &query, &mut |document| {
            bytes += document.as_bytes().len();
            documents.push(Document::try_from(document).map_err(Error::corrupt)?);
            check_size(documents.len(), bytes)?;
            Ok(true)
        })?;
        for stage in &self.stages {
            documents = stage.apply(documents, engine, database)?;
            check_size(documents.len(), 0)?;
        }
        documents.iter().map(crate::engine::raw).collect()
    }
}

fn both(left: Filter, right: Filter) -> Filter {
    if left.is_empty() { right } else { Filter::And(vec![left, right]) }
}

fn count_document(field: &str, count: u64) -> Option<Document> {
    let mut document = Document::new();
    document.insert(field, i32::try_from(count).map_or(Bson::Int64(count.cast_signed()), Bson::Int32));
    // As in MongoDB, nothing counted is no document.
    (count > 0).then_some(document)
}

fn check_size(documents: usize, bytes: usize) -> Result<()> {
    if documents > DOCUMENTS_MAX || bytes > BYTES_MAX {
        return Err(Error::TooLarge(format!(
            "a pipeline stage holds at most {DOCUMENTS_MAX} documents and {BYTES_MAX} bytes"
        )));
    }
    Ok(())
}
