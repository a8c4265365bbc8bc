//! Encryption at rest, as Kubernetes configures it (`apiserver.config.k8s.io/v1` EncryptionConfiguration).
//!
//! Modules form layers; each imports only those above it in this list:
//!
//! ```text
//! config      the configuration file: decoding and validation
//! provider    ciphers: aesgcm, aescbc, secretbox, identity
//! metrics     counters and times
//! kms         KMS v2 plugins over a unix socket
//! resources   the providers of each resource
//! encryption  the transformer of a store, its reload, the key of its index
//! ```
//!
//! A value is stored as `k8s:enc:<provider>:v1:<key name>:<ciphertext>`, with the storage key as authenticated data: a
//! ciphertext that is moved to another key does not decrypt. The first provider of a resource writes, all read.

mod config;
mod encryption;
mod kms;
mod metrics;
mod provider;
mod resources;

pub use config::ConfigError;
pub use encryption::{Encryption, PROBE_NAME, is_encrypted};
pub use kms::KmsTiming;
