//! A configuration file that is followed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use orlop_api::field_error::aggregate;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::{config::AuthenticationConfiguration, issuers::JwtIssuers};
use crate::{
    authenticator::{Outcome, TokenAuthenticator},
    jose::Algorithm,
};

/// Interval at which the file is read.
const INTERVAL: Duration = Duration::from_secs(60);
/// Limit on the discovery of new issuers before they replace the old.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Larger files are not configurations.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Authenticates tokens by the issuers in an `AuthenticationConfiguration` file. A changed file takes effect once its
/// issuers are discovered; one that is not valid changes nothing.
#[derive(Debug)]
pub struct ConfigurationFile {
    path: PathBuf,
    disallowed_issuers: Vec<String>,
    current: Mutex<(Arc<JwtIssuers>, AuthenticationConfiguration)>,
    reloads: ReloadCounts,
}

/// Numbers of reloads. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct ReloadCounts(Family<StatusLabel, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

impl ReloadCounts {
    /// Returns the number of reloads that took effect.
    pub fn succeeded(&self) -> u64 {
        self.counter(true).get()
    }

    /// Returns the number of files that could not be used.
    pub fn failed(&self) -> u64 {
        self.counter(false).get()
    }

    /// Registers the metric.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_authentication_config_controller_automatic_reloads",
            "Automatic reloads of the authentication configuration by status",
            self.0.clone(),
        );
    }

    fn counter(&self, succeeded: bool) -> Counter {
        let status = if succeeded { "success" } else { "failure" };
        self.0.get_or_create_owned(&StatusLabel { status })
    }
}

impl ConfigurationFile {
    /// Loads a file. To be called in a runtime.
    pub fn load(path: &Path, disallowed_issuers: &[String]) -> Result<Self, String> {
        let configuration = read(path)?;
        let issuers = start(&configuration, disallowed_issuers)?;
        Ok(Self {
            path: path.to_owned(),
            disallowed_issuers: disallowed_issuers.to_vec(),
            current: Mutex::new((Arc::new(issuers), configuration)),
            reloads: ReloadCounts::default(),
        })
    }

    /// Returns the configuration in effect.
    pub fn configuration(&self) -> AuthenticationConfiguration {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Returns the numbers of reloads.
    pub fn reloads(&self) -> &ReloadCounts {
        &self.reloads
    }

    /// Follows the file for as long as the authenticator is in use.
    pub fn follow(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let Some(file) = weak.upgrade() else { return };
                if let Err(why) = file.reload().await {
                    tracing::error!(path = %file.path.display(), why, "cannot reload the authentication configuration");
                }
            }
        });
    }

    /// Reads the file again. Returns true if it changed and is in effect.
    pub async fn reload(&self) -> Result<bool, String> {
        let reloaded = self.replace().await;
        match &reloaded {
            Ok(false) => {}
            reloaded => drop(self.reloads.counter(reloaded.is_ok()).inc()),
        }
        reloaded
    }

    async fn replace(&self) -> Result<bool, String> {
        let before = self.configuration();
        let configuration = read(&self.path)?;
        if configuration == before {
            return Ok(false);
        }
        if configuration.anonymous != before.anonymous {
            return Err("changing the anonymous configuration requires a restart".to_owned());
        }
        let issuers = start(&configuration, &self.disallowed_issuers)?;
        let ready = tokio::time::timeout(READY_TIMEOUT, issuers.ready()).await;
        ready.map_err(|_| "the new issuers cannot be discovered".to_owned())?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = (Arc::new(issuers), configuration);
        tracing::info!(path = %self.path.display(), "reloaded the authentication configuration");
        Ok(true)
    }

    /// Returns once all issuers are discovered.
    pub async fn ready(&self) {
        let issuers = self.issuers();
        issuers.ready().await;
    }

    fn issuers(&self) -> Arc<JwtIssuers> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

#[async_trait]
impl TokenAuthenticator for Arc<ConfigurationFile> {
    async fn authenticate(&self, token: &str, audiences: &[String]) -> Outcome {
        self.issuers().authenticate(token, audiences).await
    }
}

fn read(path: &Path) -> Result<AuthenticationConfiguration, String> {
    let failed = |why: &dyn std::fmt::Display| {
        format!(
            "failed to load authentication configuration from file {:?}: {why}",
            path.display().to_string()
        )
    };
    let metadata = fs::metadata(path).map_err(|error| failed(&error))?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(failed(&"the file is too large"));
    }
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    AuthenticationConfiguration::decode(&text).map_err(|why| failed(&why))
}

fn start(configuration: &AuthenticationConfiguration, disallowed: &[String]) -> Result<JwtIssuers, String> {
    // Any algorithm is fine that fits a key of the issuer.
    JwtIssuers::start(configuration, disallowed, Algorithm::ALL, None)
        .map_err(|errors| format!("invalid authentication configuration: {}", aggregate(&errors)))
}
