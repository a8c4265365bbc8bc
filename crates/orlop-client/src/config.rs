//! Finds the server and the credentials, as kubectl does.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use orlop_auth::webhook::{ClientConfig, Origin, Trust};

use crate::{Kubeconfig, error::ConfigError};

/// Folder of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A server, and the credentials of a client.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) client: ClientConfig,
    pub(crate) default_namespace: String,
}

impl Config {
    /// Reads the kubeconfig that kubectl would use, or in a pod its service account.
    pub fn infer() -> Result<Self, ConfigError> {
        Kubeconfig::read().and_then(|kubeconfig| Self::of(&kubeconfig)).or_else(|kubeconfig| {
            Self::in_cluster().map_err(|in_cluster| ConfigError::NotFound {
                kubeconfig: kubeconfig.to_string(),
                in_cluster: in_cluster.to_string(),
            })
        })
    }

    /// Returns the configuration of a kubeconfig's current context.
    pub fn of(kubeconfig: &Kubeconfig) -> Result<Self, ConfigError> {
        let client = ClientConfig::of(kubeconfig.to_value(), Path::new("."));
        let path = kubeconfig.path.clone();
        let mut client = client.map_err(|reason| ConfigError::Invalid { path, reason })?;
        client.files.extend(kubeconfig.files.iter().cloned());
        let default_namespace = client.namespace.clone().unwrap_or_else(|| "default".to_owned());
        Ok(Self { client, default_namespace })
    }

    fn in_cluster() -> Result<Self, ConfigError> {
        let variable = |name: &str| {
            let value = env::var(name).ok().filter(|value| !value.is_empty());
            value.ok_or_else(|| ConfigError::Unusable(format!("{name} is not set")))
        };
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        let folder = Path::new(SERVICE_ACCOUNT);
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(|source| ConfigError::Read { path, source })
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let url = format!("https://{host}:{port}");
        let (origin, path) = Origin::of(&url).map_err(ConfigError::Unusable)?;
        let client = ClientConfig {
            trust: Trust::Bundle(read("ca.crt")?.into_bytes()),
            token_file: Some(folder.join("token")),
            files: vec![folder.join("ca.crt")],
            ..ClientConfig::new(url, origin, path)
        };
        Ok(Self { client, default_namespace: read("namespace")?.trim().to_owned() })
    }

    /// Reads a kubeconfig file.
    pub fn read_from(path: &Path) -> Result<Self, ConfigError> {
        Self::of(&Kubeconfig::read_from(path)?)
    }

    /// Returns the files that it was read from.
    pub fn files(&self) -> &[PathBuf] {
        &self.client.files
    }

    /// Returns the URL of the server.
    pub fn server(&self) -> &str {
        &self.client.url
    }

    /// Returns the CAs of the server in PEM, if they are not those of the operating system.
    pub fn root_ca(&self) -> Option<String> {
        match &self.client.trust {
            Trust::Bundle(pem) => String::from_utf8(pem.clone()).ok(),
            Trust::System | Trust::Anything => None,
        }
    }
}
