//! The providers of each resource.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use orlop_store::Decoded;

use crate::{
    config::{self, ConfigError, ProviderConfig},
    kms::{KmsTiming, Lookup, NeededKey, Plugin},
    metrics::Metrics,
    provider::{Algorithm, ENCRYPTED, Keyring},
};

/// Keys of objects begin with this.
const REGISTRY: &[u8] = b"/registry/";

/// A provider.
#[derive(Debug)]
enum Provider {
    Keyring(Keyring),
    Kms(Arc<Plugin>),
    /// Values are stored in clear.
    Identity,
}

/// The providers of some resources: the first writes, all read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Providers(Vec<Arc<Provider>>);

/// Result of an attempt to decode a value.
pub(crate) enum Attempt {
    Done(Result<Decoded, String>),
    /// The plugin has to decrypt a key first.
    NeedsKey(Arc<Plugin>, NeededKey),
}

impl Providers {
    /// Returns true if values are written in clear.
    pub(crate) fn writes_clear(&self) -> bool {
        self.0.first().is_none_or(|provider| matches!(**provider, Provider::Identity))
    }

    pub(crate) fn encode(&self, key: &[u8], value: &[u8]) -> Result<Bytes, String> {
        match self.0.first().map(|provider| &**provider) {
            Some(Provider::Keyring(keyring)) => keyring.encrypt(value, key),
            Some(Provider::Kms(plugin)) => plugin.encrypt(value, key),
            Some(Provider::Identity) | None => Ok(Bytes::copy_from_slice(value)),
        }
    }

    pub(crate) fn decode(&self, key: &[u8], stored: &[u8]) -> Attempt {
        let mut errors = Vec::new();
        for (index, provider) in self.0.iter().enumerate() {
            let opened = match &**provider {
                Provider::Identity if stored.starts_with(ENCRYPTED) => None,
                Provider::Identity => Some(Ok((Bytes::copy_from_slice(stored), false))),
                Provider::Keyring(keyring) => keyring.decrypt(stored, key),
                Provider::Kms(plugin) => match plugin.decrypt(stored, key) {
                    Some(Lookup::NeedsKey(needed)) => return Attempt::NeedsKey(plugin.clone(), *needed),
                    Some(Lookup::Opened(opened)) => Some(opened),
                    None => None,
                },
            };
            match opened {
                Some(Ok((value, stale))) => {
                    return Attempt::Done(Ok(Decoded { value, stale: stale || index > 0 }));
                }
                Some(Err(error)) => errors.push(error),
                None => {}
            }
        }
        Attempt::Done(Err(match errors.len() {
            0 => "no matching prefix found".to_owned(),
            _ => orlop_api::field_error::aggregate(&errors),
        }))
    }
}

/// The providers of all resources.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    /// By group and resource; a resource of `*` is all of the group, and both are everything.
    providers: HashMap<(String, String), Providers>,
    /// In the order of the file.
    order: Vec<Providers>,
    plugins: Vec<Arc<Plugin>>,
}

impl Resources {
    /// Builds the providers of a configuration, and starts its plugins.
    pub(crate) async fn build(
        bytes: &[u8],
        timing: KmsTiming,
        metrics: &Metrics,
    ) -> Result<Self, ConfigError> {
        let mut resources = Self::default();
        for config in config::parse(bytes)? {
            let mut list = Vec::with_capacity(config.providers.len());
            for provider in &config.providers {
                list.push(Arc::new(resources.provider(provider, timing, metrics).await?));
            }
            for name in &config.resources {
                let resource = config::group_resource(name);
                let key = (resource.group, resource.resource);
                resources.providers.entry(key).or_default().0.extend(list.iter().cloned());
            }
            resources.order.push(Providers(list));
        }
        Ok(resources)
    }

    async fn provider(
        &mut self,
        config: &ProviderConfig,
        timing: KmsTiming,
        metrics: &Metrics,
    ) -> Result<Provider, ConfigError> {
        let ProviderConfig { aesgcm, aescbc, secretbox, identity: _, kms } = config;
        if let Some(config) = kms {
            let plugin = Plugin::start(config, timing, metrics).await;
            self.plugins.push(plugin.clone());
            return Ok(Provider::Kms(plugin));
        }
        let ciphers =
            [(aesgcm, Algorithm::AesGcm), (aescbc, Algorithm::AesCbc), (secretbox, Algorithm::Secretbox)];
        for (keys, algorithm) in ciphers {
            if let Some(keys) = keys {
                return Keyring::new(algorithm, keys).map(Provider::Keyring);
            }
        }
        Ok(Provider::Identity)
    }

    /// Returns the providers of a key's resource, if it is configured.
    pub(crate) fn of_key(&self, key: &[u8]) -> Option<&Providers> {
        let (group, resource) = resource_of(key)?;
        let find = |group: &str, resource: &str| self.providers.get(&(group.to_owned(), resource.to_owned()));
        find(group, resource).or_else(|| find(group, "*")).or_else(|| find("*", "*"))
    }

    /// Returns true if a configured resource may have keys below a prefix.
    pub(crate) fn may_cover(&self, prefix: &[u8]) -> bool {
        match resource_of(prefix) {
            Some(_) => self.of_key(prefix).is_some(),
            None => prefix.starts_with(REGISTRY) || REGISTRY.starts_with(prefix),
        }
    }

    /// Returns the first providers that encrypt.
    pub(crate) fn encrypting(&self) -> Option<&Providers> {
        self.order.iter().find(|providers| !providers.writes_clear())
    }

    /// Returns all lists of providers, in order.
    pub(crate) fn lists(&self) -> &[Providers] {
        &self.order
    }

    pub(crate) fn plugins(&self) -> &[Arc<Plugin>] {
        &self.plugins
    }
}

/// Returns group and resource of `/registry/GROUP/RESOURCE/…`.
fn resource_of(key: &[u8]) -> Option<(&str, &str)> {
    let rest = std::str::from_utf8(key.strip_prefix(REGISTRY)?).ok()?;
    let mut segments = rest.split('/');
    let (group, resource) = (segments.next()?, segments.next()?);
    // The name of the resource is complete if something follows.
    segments.next()?;
    Some((if group == "core" { "" } else { group }, resource))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "
kind: EncryptionConfiguration
apiVersion: apiserver.config.k8s.io/v1
resources:
- resources: [events]
  providers: [{identity: {}}]
- resources: [secrets, widgets.example.org]
  providers:
  - aesgcm: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
  - identity: {}
- resources: ['*.apps']
  providers:
  - identity: {}
  - secretbox: {keys: [{name: b, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
";

    async fn resources(text: &str) -> Resources {
        Resources::build(text.as_bytes(), KmsTiming::default(), &Metrics::default()).await.unwrap()
    }

    fn done(attempt: Attempt) -> Result<Decoded, String> {
        match attempt {
            Attempt::Done(result) => result,
            Attempt::NeedsKey(..) => panic!("no plugin"),
        }
    }

    #[tokio::test]
    async fn resources_are_found_by_key() {
        let resources = resources(CONFIG).await;
        let encrypts =
            |key: &str| resources.of_key(key.as_bytes()).map(|providers| !providers.writes_clear());
        assert_eq!(encrypts("/registry/core/secrets/a/x"), Some(true));
        assert_eq!(encrypts("/registry/example.org/widgets/a/x"), Some(true));
        assert_eq!(encrypts("/registry/example.org/gadgets/a/x"), None);
        assert_eq!(encrypts("/registry/apps/deployments/a/x"), Some(false));
        assert_eq!(encrypts("/registry/core/events/a/x"), Some(false));
        assert_eq!(encrypts("/registry/core/secretsabout/a"), None);
        assert_eq!(encrypts("/orlop/core/secrets/a"), None);
        assert!(resources.may_cover(b"/registry/core/secrets/"));
        assert!(!resources.may_cover(b"/registry/core/pods/"));
        assert!(
            resources.may_cover(b"/registry/")
                && resources.may_cover(b"/registry/core/")
                && resources.may_cover(b"")
        );
        let all = self::resources(&CONFIG.replace("'*.apps'", "'*.*'")).await;
        assert!(all.of_key(b"/registry/core/pods/a/x").is_some());
    }

    #[tokio::test]
    async fn first_provider_writes_and_any_reads() {
        let resources = resources(CONFIG).await;
        let (key, plain) = (b"/registry/core/secrets/a/x".as_slice(), b"{\"kind\":1}".as_slice());
        let secrets = resources.of_key(key).unwrap();
        let stored = secrets.encode(key, plain).unwrap();
        assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:a:"));
        assert_eq!(
            done(secrets.decode(key, &stored)),
            Ok(Decoded { value: Bytes::copy_from_slice(plain), stale: false })
        );
        assert!(done(secrets.decode(key, plain)).unwrap().stale, "in clear before");
        let unknown = done(secrets.decode(key, b"k8s:enc:secretbox:v1:b:xxxx"));
        assert_eq!(unknown, Err("no matching prefix found".to_owned()));
        let deployments = resources.of_key(b"/registry/apps/deployments/a/x").unwrap();
        assert!(!done(deployments.decode(key, plain)).unwrap().stale);
    }
}
