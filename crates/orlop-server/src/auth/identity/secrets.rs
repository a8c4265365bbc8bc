//! The secrets themselves.

use serde::{Deserialize, Serialize};

use super::{Error, Rotation};
use crate::auth::{
    TokenDigest, Tokens,
    pki::{self, Authority, Credential},
};

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
    /// Rotation of the CA.
    #[serde(default)]
    pub ca_rotation: Rotation<Credential>,
    /// Certificates (PEM) of former CAs, by which old files of the cluster are known.
    #[serde(default)]
    pub retired_cas: Vec<String>,
    /// Rotation of the CA of the front proxy.
    #[serde(default)]
    pub front_proxy_ca_rotation: Rotation<Credential>,
    /// Certificates (PEM) of former CAs of the front proxy.
    #[serde(default)]
    pub retired_front_proxy_cas: Vec<String>,
    /// Rotation of the service account key.
    #[serde(default)]
    pub service_account_key_rotation: Rotation<String>,
    /// Number of rotations of the service account key.
    #[serde(default)]
    pub service_account_key_rotations: u32,
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
            ca_rotation: Rotation::default(),
            retired_cas: Vec::new(),
            front_proxy_ca_rotation: Rotation::default(),
            retired_front_proxy_cas: Vec::new(),
            service_account_key_rotation: Rotation::default(),
            service_account_key_rotations: 0,
        })
    }
}

impl std::fmt::Debug for ClusterSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterSecrets").finish_non_exhaustive()
    }
}
