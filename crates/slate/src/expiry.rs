//! Expiry of documents by TTL indexes.

use bson::{DateTime, doc};

use crate::{
    engine::Engine,
    error::{Error, Result},
    filter::Filter,
    query::Query,
};

/// Documents deleted per step.
const STEP_DOCUMENTS: usize = 1000;

impl Engine {
    /// Deletes documents that have expired by `now`, a bounded number per index. Returns their number.
    ///
    /// Only dates expire: the bounds of a date hold no other type.
    pub fn expire(&self, now: DateTime) -> Result<u64> {
        let mut deleted = 0;
        for collection in self.catalog().collections() {
            for index in collection.indexes.iter().filter(|index| index.is_ready()) {
                let Some(seconds) = index.spec.expire_after_seconds else { continue };
                let Some(field) = index.spec.fields.first() else { continue };
                let limit = now.timestamp_millis().saturating_sub(i64::from(seconds) * 1000);
                let expired = doc! { field.path.to_string(): { "$lte": DateTime::from_millis(limit) } };
                let query = Query { limit: Some(STEP_DOCUMENTS), ..Query::new(Filter::parse(&expired)?) };
                let name = collection.name.clone();
                match self.write(move |transaction| transaction.delete(&name, &query)) {
                    Ok(count) => deleted += count,
                    // Dropped meanwhile.
                    Err(Error::NoCollection(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(deleted)
    }
}
