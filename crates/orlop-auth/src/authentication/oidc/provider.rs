//! An issuer's discovery document and keys.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, header, request::Builder};
use serde_json::Value;
use tokio::time::Instant;

use super::config::IssuerConfiguration;
use crate::{
    jose::{KeySet, Token},
    webhook::{Answer, Origin, Scheme, Transport, Trust},
};

const WELL_KNOWN: &str = "/.well-known/openid-configuration";
/// Limit on a request to an issuer, as in Kubernetes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of a document.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Time between two fetches of keys: tokens with unknown keys must not become a load on the issuer.
const FETCH_INTERVAL: Duration = Duration::from_secs(1);

/// Discovers an issuer and verifies signatures with its keys.
#[derive(Debug)]
pub(super) struct Provider {
    issuer: String,
    discovery_url: String,
    transport: Transport,
    /// Address of the keys, once the issuer is discovered.
    keys_url: OnceLock<(Origin, String)>,
    keys: Mutex<Arc<KeySet>>,
    /// Start of the last fetch of keys. Held during a fetch: there is one at a time.
    last_fetch: tokio::sync::Mutex<Option<Instant>>,
}

impl Provider {
    pub(super) fn new(issuer: &IssuerConfiguration) -> Self {
        let discovery_url = match issuer.discovery_url.as_str() {
            "" => format!("{}{WELL_KNOWN}", issuer.url.trim_end_matches('/')),
            url => url.to_owned(),
        };
        let trust = match issuer.certificate_authority.as_str() {
            "" => Trust::System,
            pem => Trust::Bundle(pem.as_bytes().to_vec()),
        };
        Self {
            issuer: issuer.url.clone(),
            discovery_url,
            transport: Transport::new(trust, None, ANSWER_BYTES_MAX),
            keys_url: OnceLock::new(),
            keys: Mutex::default(),
            last_fetch: tokio::sync::Mutex::default(),
        }
    }

    /// Returns true once the issuer is discovered.
    pub(super) fn is_initialized(&self) -> bool {
        self.keys_url.get().is_some()
    }

    /// Fetches the discovery document.
    pub(super) async fn discover(&self) -> Result<(), String> {
        let (origin, path) = https(&self.discovery_url)?;
        let document: Value = self.get(&self.discovery_url, &origin, &path).await?.json()?;
        let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
        if text("issuer") != self.issuer {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {:?} got {:?}",
                self.issuer,
                text("issuer")
            ));
        }
        if text("jwks_uri").is_empty() {
            return Err("provider did not return JWKS URL".to_owned());
        }
        let keys_url = https(text("jwks_uri"))?;
        // Discovered twice at once: one is as good as the other.
        let _ = self.keys_url.set(keys_url);
        Ok(())
    }

    /// Checks the signature of a token. Fetches the issuer's keys if none of the known ones fits.
    pub(super) async fn verify(&self, token: &Token<'_>) -> Result<(), String> {
        if self.known_keys().verifies(token) {
            return Ok(());
        }
        let Some((origin, path)) = self.keys_url.get() else {
            return Err("oidc: authenticator not initialized".to_owned());
        };
        let arrived = Instant::now();
        let mut last_fetch = self.last_fetch.lock().await;
        // Keys that were fetched meanwhile are as new as they get.
        if last_fetch.is_none_or(|fetched| fetched < arrived) {
            if let Some(last) = *last_fetch {
                tokio::time::sleep_until(last + FETCH_INTERVAL).await;
            }
            *last_fetch = Some(Instant::now());
            let failed = |why: String| format!("failed to verify signature: fetching keys {why}");
            let url = format!("https://{}:{}{path}", origin.host, origin.port);
            let answer = self.get(&url, origin, path).await.map_err(failed)?;
            let keys = KeySet::parse(&answer.body).map_err(|error| failed(format!("oidc: {error}")))?;
            *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        }
        drop(last_fetch);
        match self.known_keys().verifies(token) {
            true => Ok(()),
            false => Err("failed to verify signature: failed to verify id token signature".to_owned()),
        }
    }

    fn known_keys(&self) -> Arc<KeySet> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches a token with distributed claims.
    pub(super) async fn fetch_claims(&self, url: &str, access_token: &str) -> Result<String, String> {
        let (origin, path) = https(url)?;
        let request = Request::get(&path);
        let request = match access_token {
            "" => request,
            token => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
        };
        let answer = self.send(url, &origin, request).await?;
        let undecodable = |_| "could not decode distributed claim response".to_owned();
        String::from_utf8(answer.body.to_vec()).map_err(undecodable)
    }

    async fn get(&self, url: &str, origin: &Origin, path: &str) -> Result<Answer, String> {
        self.send(url, origin, Request::get(path).header(header::ACCEPT, "application/json")).await
    }

    async fn send(&self, url: &str, origin: &Origin, request: Builder) -> Result<Answer, String> {
        let failed = |why: &dyn std::fmt::Display| format!("Get {url:?}: {why}");
        let request = request.body(Bytes::new()).map_err(|error| failed(&error))?;
        let sent = tokio::time::timeout(TIMEOUT, self.transport.send(origin, request)).await;
        let answer =
            sent.map_err(|_| failed(&"context deadline exceeded"))?.map_err(|failure| failed(&failure))?;
        if answer.status.as_u16() != 200 {
            return Err(failed(&format!("unexpected status {}", answer.status.as_u16())));
        }
        Ok(answer)
    }
}

fn https(url: &str) -> Result<(Origin, String), String> {
    let (origin, path) = Origin::of(url)?;
    match origin.scheme {
        Scheme::Https => Ok((origin, path)),
        Scheme::Http => Err(format!("{url:?}: the scheme must be https")),
    }
}
