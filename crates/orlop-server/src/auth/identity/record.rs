//! The one value in the database that holds a cluster's secrets, sealed.

use std::time::Duration;

use orlop_store::{KeyRange, KeyValue, Put, Read, Revision, Store, Txn, Watch};

use super::{
    ClusterSecrets, Error, Rotated, Step,
    cluster_key::{ClusterKey, Sealed},
};

/// Key of the value. It is outside `/registry/`, so the API never serves it.
const KEY: &str = "/orlop/cluster-secrets";
/// Pause before a watch that failed begins again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

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
    if let Some((sealed, _)) = read(store).await? {
        return Ok((unseal(key, &sealed)?, false));
    }
    let secrets = create()?;
    let created = store.txn(Txn::create(Put::new(KEY, seal(key, &secrets)?))).await.map_err(Error::Store)?;
    if created.succeeded {
        return Ok((secrets, true));
    }
    let Some((sealed, _)) = read(store).await? else {
        return Err(Error::Damaged("they vanished while they were created".to_owned()).into());
    };
    Ok((unseal(key, &sealed)?, false))
}

/// Takes the next step of a rotation, for all servers of the cluster. They [`follow`] it.
pub async fn rotate(store: &Store, key: &ClusterKey, rotated: Rotated) -> Result<Step, Error> {
    let Some((sealed, revision)) = read(store).await? else {
        return Err(Error::Damaged("the database holds no cluster".to_owned()));
    };
    let mut secrets = unseal(key, &sealed)?;
    let step = secrets.advance(rotated)?;
    let replaced = store.txn(Txn::replace(Put::new(KEY, seal(key, &secrets)?), revision)).await?;
    match replaced.succeeded {
        true => Ok(step),
        false => Err(Error::Damaged("somebody else rotated a key at the same time: look again".to_owned())),
    }
}

/// Calls `changed` with the secrets whenever somebody has taken a step of a rotation since `known`, for ever.
pub async fn follow(
    store: &Store,
    key: &ClusterKey,
    mut known: ClusterSecrets,
    mut changed: impl FnMut(&ClusterSecrets),
) {
    loop {
        // Opened before the read: no step is missed in between.
        let watcher = store.watch(Watch::new(KeyRange::key(KEY))).await;
        match load(store, key).await {
            Ok(Some(secrets)) if secrets != known => {
                changed(&secrets);
                known = secrets;
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "cannot read the cluster's secrets; they stay as they are"),
        }
        let watched = match watcher {
            Ok(mut watcher) => watcher.next().await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = watched {
            tracing::warn!(%error, "cannot watch the cluster's secrets");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

async fn load(store: &Store, key: &ClusterKey) -> Result<Option<ClusterSecrets>, Error> {
    read(store).await?.map(|(sealed, _)| unseal(key, &sealed)).transpose()
}

fn seal(key: &ClusterKey, secrets: &ClusterSecrets) -> Result<Vec<u8>, Error> {
    let plaintext = serde_json::to_vec(secrets).map_err(damaged)?;
    serde_json::to_vec(&key.seal(KEY, plaintext)?).map_err(damaged)
}

/// Reads the value, and the revision that wrote it.
async fn read(store: &Store) -> Result<Option<(Sealed, Revision)>, Error> {
    let read = store.read(Read::new(KeyRange::key(KEY))).await?;
    let sealed = |kv: &KeyValue| Ok((serde_json::from_slice(&kv.value).map_err(damaged)?, kv.revision));
    read.kvs.first().map(sealed).transpose()
}

fn unseal(key: &ClusterKey, sealed: &Sealed) -> Result<ClusterSecrets, Error> {
    serde_json::from_slice(&key.open(KEY, sealed)?).map_err(damaged)
}

fn damaged(error: serde_json::Error) -> Error {
    // Neither position nor category names a secret; the text of the input would.
    Error::Damaged(format!("{:?} error at column {}", error.classify(), error.column()))
}
