//! Declaring the index of a range, and backfilling the terms of existing keys.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::{
    Filter, KeyRange, KeyValue, Read, Revision, Store, Terms,
    engine::{Command, Engine},
    error::{Error, Result},
};

/// Keys backfilled in one step.
const STEP_KEYS: usize = 256;
/// Metadata entry of the oldest revision at which filters are reliable.
const INDEX_FLOOR: &str = "index/floor";

/// The oldest revision whose terms all follow the current declarations.
#[derive(Debug, Default)]
pub(crate) struct IndexFloor(AtomicI64);

impl IndexFloor {
    pub(crate) async fn load(engine: &dyn Engine) -> Result<Self> {
        let floor = engine.metadata(INDEX_FLOOR).await?.and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Self(AtomicI64::new(floor)))
    }

    /// Loads other processes' declarations. Only filters over the past need them.
    pub(crate) async fn refresh(
        &self,
        engine: &dyn Engine,
        revision: Option<Revision>,
        filter: &Filter,
    ) -> Result<()> {
        if revision.is_some() && !filter.is_empty() {
            self.0.fetch_max(Self::load(engine).await?.0.into_inner(), Ordering::AcqRel);
        }
        Ok(())
    }

    /// Rejects a filter over revisions that were written under another declaration.
    pub(crate) fn check(&self, revision: Option<Revision>, filter: &Filter) -> Result<()> {
        let Some(requirement) = filter.0.first() else { return Ok(()) };
        if revision.is_some_and(|revision| revision < self.0.load(Ordering::Acquire)) {
            return Err(Error::NotIndexed(requirement.field().to_owned()));
        }
        Ok(())
    }
}

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
            let keys = page.kvs.iter().map(|kv| (kv.key.clone(), kv.revision, terms_of(kv))).collect();
            self.submit(Command::Reindex(keys)).await?;
            match page.kvs.last() {
                Some(last) if page.more => rest = rest.after(&last.key),
                _ => break,
            }
        }
        self.terms_changed();
        let floor = self.revision().await?;
        self.engine().set_metadata(INDEX_FLOOR, &floor.to_string()).await?;
        self.index_floor().0.fetch_max(floor, Ordering::AcqRel);
        self.engine().set_metadata(&name, declaration).await
    }
}
