//! Aggregation pipelines over documents.
//!
//! A pipeline is a list of stages. Leading `$match`, `$sort`, `$skip` and `$limit` become a query, so that
//! they use indexes; the rest runs over the documents in memory, within limits.

mod budget;
mod expression;
mod group;
mod stage;

use bson::{Bson, Document, RawDocumentBuf};

pub use stage::Stage;

use self::{budget::Budget, stage::Source};
use crate::{
    engine::Engine,
    error::{Error, Result},
    filter::Filter,
    query::Query,
};

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
        let mut budget = Budget::new(deadline)?;
        engine.visit(collection, &query, &mut |document| {
            let document = Document::try_from(document).map_err(Error::corrupt)?;
            budget.charge(&document)?;
            documents.push(document);
            Ok(true)
        })?;
        let source = Source { engine, database, deadline };
        for stage in &self.stages {
            documents = stage.apply(documents, &source)?;
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

#[cfg(test)]
mod tests {
    use bson::{bson, doc};

    use super::*;

    #[test]
    fn every_stage_that_works_per_document_ends_at_the_deadline() {
        let engine = Engine::in_memory();
        let source = Source { engine: &engine, database: "db", deadline: Some(std::time::Instant::now()) };
        for stage in [
            bson!({ "$unwind": "$l" }),
            bson!({ "$group": { "_id": "$l" } }),
            bson!({ "$addFields": { "m": 1 } }),
            bson!({ "$replaceRoot": { "newRoot": "$d" } }),
            bson!({ "$lookup": { "from": "none", "localField": "l", "foreignField": "l", "as": "l" } }),
        ] {
            let parsed = Stage::parse(stage.as_document().expect("a stage")).expect("a stage");
            let late = parsed.apply(vec![doc! { "l": [1], "d": {} }], &source);
            assert!(matches!(late, Err(Error::TimedOut)), "{stage}: {late:?}");
        }
    }
}
