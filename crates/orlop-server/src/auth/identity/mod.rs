//! Identity of a cluster: the secrets that all its servers share, encrypted in the cluster's database.
//!
//! Servers of one cluster must sign with the same CA and the same service account key, or a token of one is
//! 401 on the other. The database is the one thing that they have in common, so the secrets live there as one
//! value, sealed with a [`ClusterKey`] that each server has in a file. The first server creates the value with
//! a compare-and-swap; every later start reads it.

mod cluster_key;
mod record;
mod rotated;
mod rotation;
mod secrets;

pub use cluster_key::ClusterKey;
pub use record::{follow, has_secrets, load_or_create, rotate};
pub use rotated::Rotated;
pub use rotation::{Rotation, Step};
pub use secrets::ClusterSecrets;

use std::{io, path::PathBuf};

/// Errors of loading or creating a cluster's identity.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file does not hold a cluster key.
    #[error(
        "{} is not a cluster key: it must hold 32 bytes in base64, as made by `head -c 32 /dev/urandom | base64`",
        path.display()
    )]
    BadKey {
        /// The file.
        path: PathBuf,
    },
    /// The database's secrets are sealed with another key.
    #[error(
        "{} (id {found}) is not the key of this cluster (id {expected}): copy cluster.key from a server of the \
         cluster and pass it with --cluster-key-file, or use another database",
        path.display()
    )]
    WrongKey {
        /// The file of the key that was tried.
        path: PathBuf,
        /// Id of that key.
        found: String,
        /// Id of the key that the secrets are sealed with.
        expected: String,
    },
    /// The secrets in the database cannot be decrypted or decoded.
    #[error("the cluster's secrets in the database are damaged: {0}")]
    Damaged(String),
    /// The database could not be read or written.
    #[error("cannot access the cluster's secrets in the database: {0}")]
    Store(#[from] orlop_store::Error),
    /// The secrets could not be created.
    #[error(transparent)]
    Create(#[from] super::pki::Error),
}
