//! An engine whose log is decoded as it is read, for watchers.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    EncodedPage, Lease, LeaseId, Read, ReadResult, Revision, RowEncoder, Size,
    engine::{
        Bounds, Command, CommitSequence, CommittedBatch, Engine, FileSnapshot, Purge, Shrink, TailLimit,
    },
    error::Result,
    event::{Commit, VersionId},
    transform::Transform,
};

/// Decodes what another engine reads.
#[derive(Debug)]
pub(crate) struct TransformingEngine {
    inner: Arc<dyn Engine>,
    transform: Transform,
}

impl TransformingEngine {
    pub(crate) fn new(inner: Arc<dyn Engine>, transform: Transform) -> Self {
        Self { inner, transform }
    }
}

#[async_trait::async_trait]
impl Engine for TransformingEngine {
    async fn commit(&self, batch: &[Command]) -> Result<CommittedBatch> {
        // Results are decoded by the store, which may wait for a key service: a commit must not.
        let committed = self.inner.commit(batch).await?;
        Ok(CommittedBatch { commits: self.transform.decode_commits_now(committed.commits), ..committed })
    }

    fn commits_inline(&self) -> bool {
        self.inner.commits_inline()
    }

    fn wait_durable(&self, sequence: CommitSequence) -> Result<()> {
        self.inner.wait_durable(sequence)
    }

    fn defers_durability(&self) -> bool {
        self.inner.defers_durability()
    }

    fn max_page_keys(&self) -> usize {
        self.inner.max_page_keys()
    }

    async fn read(&self, read: &Read, bytes: usize) -> Result<ReadResult> {
        let mut page = self.inner.read(read, bytes).await?;
        self.transform.decode_page(&mut page).await?;
        Ok(page)
    }

    async fn read_encoded(
        &self,
        read: &Read,
        bytes: usize,
        encoder: &Arc<dyn RowEncoder>,
    ) -> Result<EncodedPage> {
        let encoded = self.inner.read_encoded(read, bytes, encoder).await?;
        self.transform.decode_encoded(encoded, Some(encoder)).await
    }

    async fn tail(&self, after: Revision, limit: TailLimit) -> Result<Vec<Arc<Commit>>> {
        Ok(self.transform.decode_commits(self.inner.tail(after, limit).await?).await)
    }

    async fn values(&self, ids: &[VersionId]) -> Result<Vec<Option<Bytes>>> {
        self.inner.values(ids).await
    }

    async fn decode(&self, key: &Bytes, value: Bytes) -> Result<Bytes> {
        self.transform.decode_value(key, value).await
    }

    async fn bounds(&self) -> Result<Bounds> {
        self.inner.bounds().await
    }

    async fn set_compacted(&self, revision: Revision) -> Result<()> {
        self.inner.set_compacted(revision).await
    }

    async fn compact_step(&self, limit: usize) -> Result<bool> {
        self.inner.compact_step(limit).await
    }

    async fn wait_for_changes(&self) {
        self.inner.wait_for_changes().await;
    }

    async fn is_leader(&self) -> bool {
        self.inner.is_leader().await
    }

    async fn lease(&self, id: LeaseId) -> Result<Option<Lease>> {
        self.inner.lease(id).await
    }

    async fn lease_keys(&self, id: LeaseId) -> Result<Vec<Bytes>> {
        self.inner.lease_keys(id).await
    }

    async fn leases(&self, limit: usize) -> Result<Vec<Lease>> {
        self.inner.leases(limit).await
    }

    async fn metadata(&self, name: &str) -> Result<Option<String>> {
        self.inner.metadata(name).await
    }

    async fn set_metadata(&self, name: &str, text: &str) -> Result<()> {
        self.inner.set_metadata(name, text).await
    }

    async fn size(&self) -> Result<Size> {
        self.inner.size().await
    }

    fn health(&self) -> Result<()> {
        self.inner.health()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }

    fn file_snapshot(&self) -> Option<&dyn FileSnapshot> {
        self.inner.file_snapshot()
    }

    fn shrink(&self) -> Option<&dyn Shrink> {
        self.inner.shrink()
    }

    fn purge(&self) -> Option<&dyn Purge> {
        self.inner.purge()
    }
}
