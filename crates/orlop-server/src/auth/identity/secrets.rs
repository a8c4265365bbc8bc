//! The secrets themselves, and their one value in the database.

use orlop_store::{KeyRange, Put, Read, Store, Txn};
use serde::{Deserialize, Serialize};

use super::{
    Error,
    cluster_key::{ClusterKey, Sealed},
};
use crate::auth::{
    TokenDigest, Tokens,
    pki::{self, Authority, Credential},
};

/// Key of the value. It is outside `/registry/`, so the API never serves it.
const KEY: &str = "/orlop/cluster-secrets";

/// Secrets that all servers of a cluster share. Not `Debug`: they stay out of logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSecrets {
    /// CA of serving and client certificates, PEM.
    pub ca: Credential,
    /// CA of the proxy certificate that aggregated API servers trust, PEM.
    pub front_proxy_ca: Credential,
    /// Key that signs service account tokens, PEM.
    pub service_account_key: String,
    /// Digest of the administrator's bearer token. The token itself is only in the data directory of the
    /// server that created the cluster.
    pub admin_token_digest: TokenDigest,
}

impl ClusterSecrets {
    /// Generates secrets for a new cluster. What is given is used instead of a new one.
    pub fn generate(
        ca: Option<Credential>,
        service_account_key: Option<String>,
        admin_token: &str,
    ) -> Result<Self, Error> {
        let generate = || Ok::<_, Error>(Authority::generate()?.credential().clone());
        Ok(Self {
            ca: ca.map_or_else(generate, Ok)?,
            front_proxy_ca: generate()?,
            service_account_key: match service_account_key {
                Some(key) => key,
                None => pki::generate_key()?,
            },
            admin_token_digest: Tokens::digest(admin_token),
        })
    }
}

impl std::fmt::Debug for ClusterSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterSecrets").finish_non_exhaustive()
    }
}

/// Returns whether the database holds the secrets of a cluster.
pub async fn has_secrets(store: &Store) -> Result<bool, Error> {
    Ok(read(store).await?.is_some())
}

/// Loads a cluster's secrets, or stores those that `create` returns if there are none. Returns the secrets
/// and whether this call created them. Of several servers that start at once, one creates them.
pub async fn load_or_create<E: From<Error>>(
    store: &Store,
    key: &ClusterKey,
    create: impl FnOnce() -> Result<ClusterSecrets, E>,
) -> Result<(ClusterSecrets, bool), E> {
    if let Some(sealed) = read(store).await? {
        return Ok((unseal(key, &sealed)?, false));
    }
    let secrets = create()?;
    let plaintext = serde_json::to_vec(&secrets).map_err(damaged)?;
    let sealed = serde_json::to_vec(&key.seal(KEY, plaintext)?).map_err(damaged)?;
    let created = store.txn(Txn::create(Put::new(KEY, sealed))).await.map_err(Error::Store)?;
    if created.succeeded {
        return Ok((secrets, true));
    }
    let Some(sealed) = read(store).await? else {
        return Err(Error::Damaged("they vanished while they were created".to_owned()).into());
    };
    Ok((unseal(key, &sealed)?, false))
}

async fn read(store: &Store) -> Result<Option<Sealed>, Error> {
    let read = store.read(Read::new(KeyRange::key(KEY))).await?;
    read.kvs.first().map(|kv| serde_json::from_slice(&kv.value).map_err(damaged)).transpose()
}

fn unseal(key: &ClusterKey, sealed: &Sealed) -> Result<ClusterSecrets, Error> {
    serde_json::from_slice(&key.open(KEY, sealed)?).map_err(damaged)
}

fn damaged(error: serde_json::Error) -> Error {
    // Neither position nor category names a secret; the text of the input would.
    Error::Damaged(format!("{:?} error at column {}", error.classify(), error.column()))
}
