//! Snapshots: streaming a consistent copy, and restoring one.
//!
//! A snapshot is a SQLite database followed by its SHA-256, as etcd's is a bbolt database followed by one. `etcdctl
//! snapshot save` checks that the digest is there, [`restore`] that it is right. The copy is written to a temporary file
//! first, so that a slow reader does not block the store.

use futures_util::future::BoxFuture;
use std::path::{Path, PathBuf};

use futures_util::{Stream, stream};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Status;

use crate::{errors::status, node::Node, pb::etcdserverpb::SnapshotResponse};

const CHUNK_BYTES: usize = 64 << 10;
const DIGEST_BYTES: u64 = 32;

/// Failure of a restore.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A file could not be read or written.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The target exists. A restore never overwrites data.
    #[error("{path} exists already: restore into a new file", path = .0.display())]
    Exists(PathBuf),
    /// The snapshot is corrupt, or not Orlop's.
    #[error("{path} is not an intact snapshot: {reason}", path = .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: &'static str,
    },
}

/// Streams a snapshot: the copy, then its digest.
pub(crate) async fn stream(
    node: &Node,
) -> Result<impl Stream<Item = Result<SnapshotResponse, Status>> + Send + use<>, Status> {
    let failed = |error: std::io::Error| Status::unavailable(format!("orlop: snapshot: {error}"));
    let folder = tempfile::tempdir().map_err(failed)?;
    let path = folder.path().join("snapshot.db");
    node.store.snapshot(&path).await.map_err(status)?;
    let header = node.header_now().await?;
    let file = tokio::fs::File::open(&path).await.map_err(failed)?;
    let remaining = file.metadata().await.map_err(failed)?.len();
    let version = format!("orlop {}", env!("CARGO_PKG_VERSION"));
    let state = Some((file, folder, Sha256::new(), remaining));
    Ok(stream::try_unfold(state, move |state| {
        let version = version.clone();
        async move {
            let Some((mut file, folder, mut digest, remaining)) = state else { return Ok(None) };
            if remaining == 0 {
                let blob = digest.finalize().to_vec().into();
                return Ok(Some((SnapshotResponse { header, remaining_bytes: 0, blob, version }, None)));
            }
            let mut blob = vec![0; CHUNK_BYTES.min(remaining as usize)];
            file.read_exact(&mut blob).await.map_err(failed)?;
            digest.update(&blob);
            let remaining_bytes = remaining - blob.len() as u64;
            let response = SnapshotResponse { header, remaining_bytes, blob: blob.into(), version };
            Ok(Some((response, Some((file, folder, digest, remaining_bytes)))))
        }
    }))
}

/// Restores a snapshot into a new database file, after verifying its digest. Returns the number of bytes.
pub fn restore<'a>(from: &'a Path, to: &'a Path) -> BoxFuture<'a, Result<u64, RestoreError>> {
    Box::pin(async move {
        let reading = |source| RestoreError::File { path: from.into(), source };
        let writing = |source| RestoreError::File { path: to.into(), source };
        let corrupt = |reason| RestoreError::Corrupt { path: from.into(), reason };
        if to.exists() {
            return Err(RestoreError::Exists(to.into()));
        }
        let mut source = tokio::fs::File::open(from).await.map_err(reading)?;
        let length = source.metadata().await.map_err(reading)?.len();
        let length = length.checked_sub(DIGEST_BYTES).ok_or(corrupt("it is too short"))?;
        let partial = to.with_extension("restoring");
        let mut target = tokio::fs::File::create(&partial).await.map_err(writing)?;
        let (mut digest, mut left, mut buffer) = (Sha256::new(), length, vec![0; CHUNK_BYTES]);
        while left > 0 {
            let part = CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES));
            let chunk = &mut buffer[..part];
            source.read_exact(chunk).await.map_err(reading)?;
            if left == length && !chunk.starts_with(b"SQLite format 3\0") {
                let _ = tokio::fs::remove_file(&partial).await;
                return Err(corrupt(
                    "it is not made by orlop (an etcd snapshot is copied with `orlop etcd import`)",
                ));
            }
            digest.update(&*chunk);
            target.write_all(chunk).await.map_err(writing)?;
            left -= part as u64;
        }
        let mut expected = [0; DIGEST_BYTES as usize];
        source.read_exact(&mut expected).await.map_err(reading)?;
        if digest.finalize()[..] != expected[..] {
            let _ = tokio::fs::remove_file(&partial).await;
            return Err(corrupt("its digest does not match"));
        }
        target.sync_all().await.map_err(writing)?;
        tokio::fs::rename(&partial, to).await.map_err(writing)?;
        Ok(length)
    })
}
