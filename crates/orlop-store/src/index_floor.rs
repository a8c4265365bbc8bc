//! The oldest revision at which filters are reliable.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::{
    Filter, Revision,
    engine::Engine,
    error::{Error, Result},
};

/// Metadata entry of the oldest revision at which filters are reliable.
pub(crate) const INDEX_FLOOR: &str = "index/floor";

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
            self.raise(Self::load(engine).await?.0.into_inner());
        }
        Ok(())
    }

    /// Raises the floor to a revision.
    pub(crate) fn raise(&self, revision: Revision) {
        self.0.fetch_max(revision, Ordering::AcqRel);
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
