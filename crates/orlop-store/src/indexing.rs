//! Declaring the index of a range, and backfilling the terms of existing keys.

use crate::{
    KeyRange, KeyValue, Read, Store, Terms, engine::Command, error::Result, index_floor::INDEX_FLOOR,
};

/// Keys backfilled in one step.
const STEP_KEYS: usize = 256;

impl Store {
    /// Declares that versions in `range` carry the terms that `terms_of` returns.
    ///
    /// `declaration` names the rule: while it stays the same this returns at once. When it is new, every version
    /// in the range is backfilled in small steps beside the traffic, without new revisions. Filters over the
    /// range are reliable once this has returned. Writers must use the new rule before it is called.
    pub async fn declare_index(
        &self,
        range: KeyRange,
        declaration: &str,
        terms_of: impl Fn(&KeyValue) -> Terms,
    ) -> Result<()> {
        // Both ends name it: a key and the prefix that begins like it are different ranges.
        let end = range.end().map(|end| end.escape_ascii().to_string()).unwrap_or_default();
        let name = format!("index/{}..{end}", range.start().escape_ascii());
        if self.engine().metadata(&name).await?.as_deref() == Some(declaration) {
            return Ok(());
        }
        let mut rest = range;
        loop {
            let page = self.read(Read { limit: STEP_KEYS, ..Read::new(rest.clone()) }).await?;
            let keys = page
                .kvs
                .iter()
                .map(|kv| (kv.key.clone(), kv.revision, self.stored_terms(&kv.key, terms_of(kv))))
                .collect();
            self.submit(Command::Reindex(keys)).await?;
            match page.kvs.last() {
                Some(last) if page.more => rest = rest.after(&last.key),
                _ => break,
            }
        }
        self.terms_changed();
        let floor = self.revision().await?;
        self.engine().set_metadata(INDEX_FLOOR, &floor.to_string()).await?;
        self.index_floor().raise(floor);
        self.engine().set_metadata(&name, declaration).await
    }
}
